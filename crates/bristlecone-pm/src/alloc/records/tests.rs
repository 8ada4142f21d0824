//! Records of every length, pinned readers, and dangling references.

use super::*;
use crate::{CHUNK_BYTES, Domain, Geometry, Native, Persist, Region, TreeSpec, Word};

fn records() -> (Arc<PoolFile<Native>>, Records<Native>) {
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 64, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let medium = Native::new(Domain::Adr);
    let pool = PoolFile::create_in(region, geometry, Domain::Adr, medium).unwrap();
    let spec = TreeSpec {
        name: "t".into(),
        design: 1,
        key_kind: "bytes".into(),
        value_kind: "bytes".into(),
        expire_after_ms: 0,
        params: [0; 8],
    };
    let id = pool.create_tree(&spec).unwrap().id;
    let records = Records::open(&pool, RecordSpec::new(id, SlotKind::KEY_RECORD)).unwrap();
    (pool, records)
}

#[test]
fn every_length_comes_back() {
    let (pool, records) = records();
    let guard = crate::sync::epoch::pin();
    let bytes: Vec<u8> = (0..VALUE_BYTES_MAX).map(|i| (i * 31) as u8).collect();
    for len in (0..300).chain([4096, 16 << 10, 65_535, 65_536, VALUE_BYTES_MAX]) {
        let (offset, flushed) = records.write(&bytes[..len], "test").unwrap();
        let _durable = pool.medium().fence(flushed, "test");
        assert_eq!(records.read(offset, &guard), &bytes[..len]);
        records.verify(offset).unwrap();
    }
}

#[test]
fn a_pinned_reader_keeps_the_bytes() {
    let (_pool, records) = records();
    let (offset, _flushed) = records.write(b"kept while read", "test").unwrap();
    let reader = crate::sync::epoch::pin();
    let bytes = records.read(offset, &reader);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            records.retire(offset, &crate::sync::epoch::pin());
            for round in 0..2000_u32 {
                let guard = crate::sync::epoch::pin();
                guard.flush();
                let (other, _flushed) = records.write(&round.to_le_bytes().repeat(3), "test").unwrap();
                assert_ne!(other, offset);
            }
        });
    });
    assert_eq!(bytes, b"kept while read");
}

#[test]
fn what_readers_let_go_is_used_again() {
    let (_pool, records) = records();
    for round in 0..200_000_u64 {
        let (offset, _flushed) = records.write(&[round as u8; 100], "test").unwrap();
        records.retire(offset, &crate::sync::epoch::pin());
    }
    assert!(records.stats().1 <= 4 * CHUNK_BYTES, "{:?}", records.stats());
}

#[test]
fn nonsense_is_no_record() {
    let (pool, records) = records();
    let (offset, _flushed) = records.write(b"right", "test").unwrap();
    for wrong in [0, 8, offset + 1, offset + 8, u64::MAX, u64::MAX - 7, 1 << 40] {
        assert!(records.mark_live(wrong).and(records.verify(wrong)).is_err(), "{wrong:#x}");
    }
    pool.at::<Word>(offset + 8).store(pool.medium(), 1);
    assert!(matches!(records.verify(offset), Err(Error::Corrupted { .. })));
}
