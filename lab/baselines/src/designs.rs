//! The baselines by name, and all designs by name for a comparison.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bristlecone::lab::{
    self, AnyIndex, ExternalDesign, PARAMS, Parameters, TreeDesign, design_options, of_words,
};
use bristlecone::{Design, Error, Key, Medium, Pool, Result, Tree, Value};
use bristlecone_pm::{PoolFile, TreeEntry};

use crate::betree::BeTree;
use crate::coupled::Coupled;
use crate::dptree::DpTree;
use crate::fastfair::FastFair;
use crate::flatstore::FlatStore;
use crate::fptree::FpTree;
use crate::hybrid::Hybrid;
use crate::index::BaselineIndex;
use crate::lbtree::LbTree;
use crate::native::Native;
use crate::pactree::PacTree;
use crate::utree::UTree;
use crate::wbtree::WbTree;

/// A published design for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Baseline {
    /// A B+-tree with sorted leaves that shift, and full write-ahead logging.
    Native,
    /// wB+-Tree: bitmaps and slot arrays with a valid bit.
    WbTree,
    /// FAST & FAIR: shifts that tolerate duplicate entries, splits in place, siblings.
    FastFair,
    /// LB+-Tree: leaves of four lines, of which most inserts flush one.
    LbTree,
    /// FPTree: fingerprints, bitmaps, micro-logs.
    FpTree,
    /// µTree: a tree in DRAM over a list of items on the medium.
    UTree,
    /// FlatStore: a log shared by all threads, and a tree in DRAM that leads to its entries.
    FlatStore,
    /// DPTree: one buffer for the whole tree, which is merged as a whole.
    DpTree,
    /// A Bε-tree: a buffer in each inner node, which is flushed to its children.
    BeTree,
    /// PACTree: leaves that know their ranges, under a search layer that is updated after splits.
    PacTree,
}

impl Baseline {
    /// Every baseline.
    pub const ALL: &[Self] = &[
        Self::Native,
        Self::WbTree,
        Self::FastFair,
        Self::LbTree,
        Self::FpTree,
        Self::UTree,
        Self::FlatStore,
        Self::DpTree,
        Self::BeTree,
        Self::PacTree,
    ];

    /// Returns the name, as in arguments and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::WbTree => "wbtree",
            Self::FastFair => "fastfair",
            Self::LbTree => "lbtree",
            Self::FpTree => "fptree",
            Self::UTree => "utree",
            Self::FlatStore => "flatstore",
            Self::DpTree => "dptree",
            Self::BeTree => "betree",
            Self::PacTree => "pactree",
        }
    }

    /// Returns the number of lines of a node recommended by its paper.
    fn node_lines(self) -> u64 {
        match self {
            Self::LbTree => 4,
            Self::DpTree | Self::BeTree => 32,
            _ => 16,
        }
    }
}

design_options! {
    /// Options of every baseline.
    pub struct Options of "a baseline" {
        /// Lines of a node; 2 is for tests. The default of LB+-Tree is 4.
        node_lines = 16 in [2, 4, 8, 16, 32];
    }
}

impl ExternalDesign for Baseline {
    fn code(self) -> u32 {
        match self {
            Self::Native => 0x101,
            Self::WbTree => 0x102,
            Self::FastFair => 0x103,
            Self::LbTree => 0x104,
            Self::FpTree => 0x105,
            Self::UTree => 0x106,
            Self::FlatStore => 0x107,
            Self::DpTree => 0x108,
            Self::BeTree => 0x109,
            Self::PacTree => 0x10a,
        }
    }

    fn supports(self, are_words: (bool, bool)) -> Result<()> {
        if are_words == (true, true) {
            return Ok(());
        }
        Err(Error::invalid(format!("{self} is a baseline, which keeps 8-byte keys and values only")))
    }

    fn parse(self, given: &[(String, u64)]) -> Result<[u64; PARAMS]> {
        let mut options = Options::parse(given)?;
        if given.is_empty() {
            options.node_lines = self.node_lines();
        }
        Ok(options.to_words())
    }

    fn open<M: Medium>(self, pool: &Arc<PoolFile<M>>, entry: &TreeEntry) -> Result<AnyIndex> {
        if entry.spec.design != self.code() {
            return Err(Error::invalid(format!("the tree is not of design {self}")));
        }
        let lines = Options::from_words(entry.spec.params)?.node_lines;
        Ok(match self {
            Self::Native => of_words(BaselineIndex::<Coupled<Native, M>, M>::open(pool, entry, lines)?),
            Self::WbTree => of_words(BaselineIndex::<Coupled<WbTree, M>, M>::open(pool, entry, lines)?),
            Self::FastFair => of_words(BaselineIndex::<FastFair<M>, M>::open(pool, entry, lines)?),
            Self::LbTree => of_words(BaselineIndex::<Hybrid<LbTree, M>, M>::open(pool, entry, lines)?),
            Self::FpTree => of_words(BaselineIndex::<Hybrid<FpTree<M>, M>, M>::open(pool, entry, lines)?),
            Self::UTree => of_words(BaselineIndex::<UTree<M>, M>::open(pool, entry, lines)?),
            Self::FlatStore => of_words(BaselineIndex::<FlatStore<M>, M>::open(pool, entry, lines)?),
            Self::DpTree => of_words(BaselineIndex::<DpTree<M>, M>::open(pool, entry, lines)?),
            Self::BeTree => of_words(BaselineIndex::<BeTree<M>, M>::open(pool, entry, lines)?),
            Self::PacTree => of_words(BaselineIndex::<PacTree<M>, M>::open(pool, entry, lines)?),
        })
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A design of the library, or a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyDesign {
    /// A design of the library.
    Library(Design),
    /// A design for comparison.
    Baseline(Baseline),
}

impl AnyDesign {
    /// Returns every design, the library's first.
    pub fn all() -> impl Iterator<Item = Self> {
        let library = Design::ALL.iter().map(|design| Self::Library(*design));
        library.chain(Baseline::ALL.iter().map(|baseline| Self::Baseline(*baseline)))
    }

    /// Returns the name, as in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library(design) => design.name(),
            Self::Baseline(baseline) => baseline.name(),
        }
    }

    /// Returns whether it exists for comparison only.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Baseline(_))
    }

    /// Returns the name with a description, for reports.
    pub fn title(self) -> String {
        let mark = if self.is_baseline() { " (baseline)" } else { "" };
        format!("{}{mark}", self.name())
    }

    /// Creates a tree of this design in a pool on the medium `M`.
    ///
    /// # Errors
    ///
    /// As [`TreeOptions::create`](bristlecone::TreeOptions::create); a baseline rejects keys and values that are not
    /// inline, and a pool on another medium.
    pub fn create<K: Key, V: Value, M: Medium>(
        self,
        pool: &Pool,
        name: &str,
        options: &[(String, u64)],
    ) -> Result<Tree<K, V>> {
        match self {
            Self::Library(design) => {
                let tree = pool.tree_options(name).design(design);
                options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value)).create()
            }
            Self::Baseline(baseline) => lab::create::<K, V, M>(pool, name, baseline, options),
        }
    }

    /// Opens a tree of this design in a pool on the medium `M`.
    ///
    /// # Errors
    ///
    /// As [`TreeOptions::open`](bristlecone::TreeOptions::open); a baseline rejects what its creation rejects.
    pub fn open<K: Key, V: Value, M: Medium>(self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        match self {
            Self::Library(design) => pool.tree_options(name).design(design).open(),
            Self::Baseline(baseline) => lab::open::<K, V, M>(pool, name, baseline),
        }
    }
}

impl TreeDesign for AnyDesign {
    fn create<K: Key, V: Value, M: Medium>(
        self,
        pool: &Pool,
        name: &str,
        options: &[(String, u64)],
    ) -> Result<Tree<K, V>> {
        Self::create::<K, V, M>(self, pool, name, options)
    }

    fn open<K: Key, V: Value, M: Medium>(self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        Self::open::<K, V, M>(self, pool, name)
    }

    fn library(self) -> Option<Design> {
        match self {
            Self::Library(design) => Some(design),
            Self::Baseline(_) => None,
        }
    }
}

impl From<Design> for AnyDesign {
    fn from(design: Design) -> Self {
        Self::Library(design)
    }
}

impl From<Baseline> for AnyDesign {
    fn from(baseline: Baseline) -> Self {
        Self::Baseline(baseline)
    }
}

impl fmt::Display for AnyDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AnyDesign {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::all().find(|design| design.name() == name).ok_or_else(|| {
            let named = |baselines: bool| {
                let of = Self::all().filter(|design| design.is_baseline() == baselines);
                of.map(Self::name).collect::<Vec<_>>().join(", ")
            };
            let (library, baselines) = (named(false), named(true));
            Error::invalid(format!(
                "unknown design {name:?}: there is {library}, and as baselines {baselines}"
            ))
        })
    }
}
