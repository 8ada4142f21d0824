//! What the tests share: a pool file that goes away, and noise that repeats.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use bristlecone::{Design, Key, Medium, Pool, PoolOptions, Result, Tree, TreeOptions, Value};
use bristlecone_baselines::{Baseline, Contender};

/// A design with options: small ones, so that every structure change comes often.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub design: Design,
    pub options: &'static [(&'static str, u64)],
}

const fn shape(design: Design, options: &'static [(&'static str, u64)]) -> Shape {
    Shape { design, options }
}

/// Shapes of every design; the first of a design is its default.
pub const SHAPES: &[Shape] = &[
    shape(Design::SsTree, &[]),
    shape(Design::SsTree, &[("subnode_bytes", 128), ("max_subnodes", 1), ("inner_bytes", 256)]),
    shape(Design::SsTree, &[("subnode_bytes", 128), ("max_subnodes", 2)]),
    shape(Design::SsTree, &[("subnode_bytes", 128), ("max_subnodes", 4), ("inner_bytes", 256)]),
    shape(Design::SsTree, &[("subnode_bytes", 192), ("max_subnodes", 3), ("move_items", 0)]),
    shape(Design::SsTree, &[("max_subnodes", 4)]),
    shape(Design::NbTree, &[]),
    shape(Design::NbTree, &[("block_bytes", 128), ("inner_bytes", 256)]),
    shape(Design::NbTree, &[("block_bytes", 256), ("layers", 1)]),
    shape(Design::NbTree, &[("block_bytes", 512), ("locking", 1), ("inner_bytes", 256)]),
    shape(Design::NbTree, &[("block_bytes", 128), ("locking", 2)]),
    shape(Design::CclBTree, &[]),
    shape(Design::CclBTree, &[("leaf_slots", 4), ("inner_bytes", 256), ("log_entries", 40)]),
    shape(Design::CclBTree, &[("batch", 5), ("log_entries", 300), ("collector_threads", 0)]),
    shape(
        Design::CclBTree,
        &[("batch", 8), ("leaf_slots", 10), ("log_entries", 20), ("collector_threads", 0)],
    ),
    shape(Design::CclBTree, &[("batch", 0), ("leaf_slots", 8)]),
    shape(Design::CclBTree, &[("batch", 1), ("log_all", 1), ("leaf_slots", 5), ("log_entries", 25)]),
    shape(Design::CclBTree, &[("naive_collection", 1), ("leaf_slots", 7), ("log_entries", 30)]),
    shape(Design::WoTree, &[]),
    shape(Design::WoTree, &[("node_lines", 2)]),
    shape(Design::WoTree, &[("node_lines", 4)]),
    shape(Design::WoTree, &[("node_lines", 8)]),
    shape(Design::WoTree, &[("node_lines", 32)]),
    shape(Design::LodgeTree, &[]),
    shape(
        Design::LodgeTree,
        &[
            ("node_slots", 6),
            ("leaf_slots", 3),
            ("inner_bytes", 256),
            ("log_entries", 40),
            ("split_nodes", 3),
        ],
    ),
    shape(
        Design::LodgeTree,
        &[("node_slots", 10), ("leaf_slots", 7), ("flush_leaves", 1), ("log_entries", 500)],
    ),
    shape(
        Design::LodgeTree,
        &[("node_slots", 36), ("leaf_slots", 4), ("flush_leaves", 8), ("split_nodes", 8)],
    ),
    shape(
        Design::LodgeTree,
        &[("node_slots", 12), ("split_items", 10), ("log_entries", 2000), ("split_nodes", 2)],
    ),
];

/// Every design with its default options.
pub fn defaults() -> impl Iterator<Item = Shape> {
    Design::ALL.iter().map(|&design| shape(design, &[]))
}

/// Every design with the smallest of its leaves.
pub fn small() -> impl Iterator<Item = Shape> {
    Design::ALL.iter().map(|&design| {
        let found = SHAPES.iter().filter(|shape| shape.design == design).nth(1);
        *found.expect("every design has a small shape")
    })
}

/// A baseline with nodes of a size; it keeps words only.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    baseline: Baseline,
    node_lines: u64,
}

/// Baselines in the sizes that their papers use, the smallest first, and in one that splits at once.
pub fn baselines() -> impl Iterator<Item = Beside> {
    let sizes = |&baseline| [2, 4, 16, 32].map(|node_lines| Beside { baseline, node_lines });
    Baseline::ALL.iter().flat_map(sizes)
}

/// What trees can be made of.
pub trait Plant: Copy + std::fmt::Debug + Send + Sync {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>>;
    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>>;
}

impl Plant for Shape {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.tree(pool, name).create()
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.tree(pool, name).open()
    }
}

impl Plant for Beside {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        let options = [("node_lines".to_owned(), self.node_lines)];
        Contender::Baseline(self.baseline).create(pool, name, &options)
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        Contender::Baseline(self.baseline).open(pool, name)
    }
}

impl Shape {
    /// Begins to create or open a tree of this shape.
    pub fn tree<M: Medium>(&self, pool: &Pool<M>, name: &str) -> TreeOptions<M> {
        let options = pool.tree_options(name).design(self.design);
        self.options.iter().fold(options, |options, &(name, value)| options.option(name, value))
    }
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/bristlecone-test-{}-{number}.pool", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub fn options(&self) -> PoolOptions {
        Pool::options().max_bytes(256 << 20).create(true)
    }

    pub fn open(&self) -> Pool {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<Pool> {
        self.options().open(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// xorshift64.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
