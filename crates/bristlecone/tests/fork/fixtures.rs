//! Pools with trees of every shape.

use bristlecone::{Domain, Pool, Tree};

use super::common::{Beside, CONFIGURATIONS, DOMAIN, Plant, share, small_baselines};

/// Returns whether the pools of the running tests have a journal.
pub fn has_journal() -> bool {
    DOMAIN.get() == Some(Domain::Journal)
}

/// All configurations of trees in these tests. A quick run takes a share of them for pools with a journal, which have no
/// trees of external designs.
pub fn plants() -> impl Iterator<Item = Box<dyn Sower>> {
    let configurations = if has_journal() { share(CONFIGURATIONS) } else { CONFIGURATIONS.iter().collect() };
    let configurations = configurations.into_iter().map(|&shape| Box::new(shape) as Box<dyn Sower>);
    let baselines = small_baselines().filter(|_| !has_journal());
    configurations.chain(baselines.map(|beside: Beside| Box::new(beside) as Box<dyn Sower>))
}

/// A [`Plant`] with words and, if supported, texts.
pub trait Sower {
    fn words(&self, pool: &Pool) -> Tree<u64, u64>;
    fn texts(&self, pool: &Pool) -> Option<Tree<&'static str, &'static [u8]>>;
}

impl<P: Plant> Sower for P {
    fn words(&self, pool: &Pool) -> Tree<u64, u64> {
        self.create(pool, "words").or_else(|_| self.open(pool, "words")).unwrap()
    }

    fn texts(&self, pool: &Pool) -> Option<Tree<&'static str, &'static [u8]>> {
        self.create(pool, "texts").or_else(|_| self.open(pool, "texts")).ok()
    }
}

fn text(key: u64) -> String {
    format!("the text of key {key}")
}

pub struct Planted {
    pub pool: Pool,
    pub words: Tree<u64, u64>,
    pub texts: Option<Tree<&'static str, &'static [u8]>>,
}

impl Planted {
    pub fn in_(pool: Pool, sower: &dyn Sower) -> Self {
        Self { words: sower.words(&pool), texts: sower.texts(&pool), pool }
    }

    pub fn fill(&self, keys: std::ops::Range<u64>) {
        for key in keys {
            self.words.insert(key, key + 1).unwrap();
            if let Some(texts) = &self.texts {
                texts.insert(&text(key), text(key + 1).as_bytes()).unwrap();
            }
        }
    }

    pub fn verify(&self, keys: u64) {
        assert_eq!(self.words.len().unwrap(), keys);
        assert!(self.words.iter().map(Result::unwrap).eq((0..keys).map(|key| (key, key + 1))));
        assert!(self.words.check().is_empty() && self.pool.check().is_empty());
        if let Some(texts) = &self.texts {
            assert_eq!(texts.len().unwrap(), keys);
            assert!((0..keys).all(|key| texts.get(&text(key)).unwrap() == Some(text(key + 1).into_bytes())));
            assert!(texts.check().is_empty());
        }
    }
}
