//! In-memory trees for the tests of both designs.

use std::sync::Arc;

use bristlecone_pm::{CHUNK_BYTES, Domain, Geometry, Medium, PoolFile, Region, TreeSpec};

use crate::index::Open;
use crate::index::options::Parameters;
use crate::index::parts::codec::KeyCodec;
use crate::index::testing::of_words;

/// Returns an empty pool with a maximum of `max_bytes`.
pub fn pool<M: Medium>(max_bytes: u64, medium: M) -> Arc<PoolFile<M>> {
    let chunks_max = max_bytes.div_ceil(CHUNK_BYTES);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    PoolFile::create_in(region, geometry, Domain::Process, medium).unwrap()
}

/// Creates a tree of words in a pool.
pub fn tree<K: KeyCodec, M: Medium, T: Open<K, M>>(
    pool: &Arc<PoolFile<M>>,
    name: &str,
    options: T::Options,
) -> T
where
    T::Options: Parameters + Copy,
{
    let key_kind = if K::INLINE { "u64" } else { "bytes" };
    let spec = TreeSpec::new(name, 0, key_kind, "u64").with_params(options.to_words());
    let entry = &pool.create_tree(&spec).unwrap();
    T::open(pool, of_words(entry), options, 1).unwrap()
}

/// Maps numbers to distinct keys in scrambled order.
pub fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
