//! Stores for `bank`, `batch` and `snapshot`: created, closed, and reopened, also by a process that
//! is killed.

use std::path::{Path, PathBuf};

use bristlecone::{Domain, Pool, Tree};
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt::remove_pool;

use super::Kind;
use super::ledger::{Ledger, PoolLedger, StoreLedger};
use crate::bench::comparison::Plan;
use crate::bench::competitor::Competitor;
use crate::bench::rivals::{self, Class};

/// A store by name, with its creation parameters.
#[derive(Debug)]
pub struct Kept {
    store: Competitor,
    options: Vec<(String, u64)>,
    domain: Domain,
    max_bytes: u64,
    path: PathBuf,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A pool, or another store's folder.
        remove_pool(&self.path);
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

const TREE: &str = "accounts";

impl Kept {
    /// Returns the stores of a plan, the design first, at separate adjacent paths.
    ///
    /// # Errors
    ///
    /// For stores without atomic changes of several keys.
    pub fn all(kind: Kind, plan: &Plan, domain: Domain, path: &Path) -> Outcome<Vec<Self>> {
        let ours = Competitor::Tree(plan.setup.design);
        let stores = std::iter::once(&ours).chain(&plan.against).enumerate();
        let kept = |(at, store): (usize, &Competitor)| {
            let takes_part = match store {
                Competitor::Tree(design) => matches!(design, AnyDesign::Library(_)),
                Competitor::Store(_) => kind != Kind::Snapshot,
                Competitor::Map(_) | Competitor::Library(_) | Competitor::Follower => false,
            };
            if !takes_part {
                let (name, preset) = (store.name(), kind.name());
                let others = if kind == Kind::Snapshot { "" } else { ", redb, fjall, lmdb and rocksdb" };
                return Err(Failure::usage(format!(
                    "{name} has no part in the preset {preset}: the library's designs{others} have"
                )));
            }
            let options = if at == 0 { plan.setup.options.clone() } else { Vec::new() };
            let path = path.with_extension(format!("{}-{at}", store.name()));
            Ok(Self { store: store.clone(), options, domain, max_bytes: plan.setup.max_bytes, path })
        };
        stores.map(kept).collect()
    }

    /// Returns the store that another process created.
    pub fn there(
        store: Competitor,
        domain: Domain,
        max_bytes: u64,
        path: &Path,
    ) -> std::mem::ManuallyDrop<Self> {
        // The other process removes it.
        let path = path.to_owned();
        std::mem::ManuallyDrop::new(Self { store, options: Vec::new(), domain, max_bytes, path })
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        self.store.name()
    }

    /// Returns the durability of a completed operation, and what provides it.
    pub fn durability(&self) -> String {
        self.store.durability(self.domain)
    }

    /// Returns its path if a commit syncs an ordinary file.
    pub fn syncs_a_disk(&self) -> Option<&Path> {
        matches!(self.domain, Domain::Msync | Domain::Journal).then_some(&*self.path)
    }

    /// Returns the arguments for another process to find it.
    pub fn arguments(&self) -> Vec<String> {
        let max_bytes = self.max_bytes.to_string();
        let path = self.path.display().to_string();
        let pairs = [
            ("--store", self.name()),
            ("--domain", self.domain.to_string()),
            ("--max-bytes", max_bytes),
            ("--path", path),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Creates the store; replaces an existing one.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn create(&self) -> Outcome<Box<dyn Ledger>> {
        match self.store {
            Competitor::Tree(_) => {
                let (pool, tree) = self.create_tree()?;
                Ok(Box::new(PoolLedger::new(pool, tree)))
            }
            _ => {
                let _ = std::fs::remove_dir_all(&self.path);
                std::fs::create_dir(&self.path).map_err(|error| Failure::io(self.path.display(), &error))?;
                self.open()
            }
        }
    }

    /// Creates the pool and the tree of one of the library's designs; replaces an existing one.
    ///
    /// # Errors
    ///
    /// Those of the pool, and for other stores.
    pub fn create_tree(&self) -> Outcome<(Pool, Tree<u64, u64>)> {
        let Competitor::Tree(AnyDesign::Library(design)) = self.store else {
            return Err(self.failed("it is none of the library's designs"));
        };
        remove_pool(&self.path);
        let options = Pool::options().max_bytes(self.max_bytes).create_new(true).domain(self.domain);
        let pool = options.open(&self.path)?;
        let tree = pool.tree_options(TREE).design(design);
        let with = |tree: bristlecone::TreeOptions, (name, value): &(String, u64)| tree.option(name, *value);
        let tree = self.options.iter().fold(tree, with).create()?;
        Ok((pool, tree))
    }

    /// Opens the existing store.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn open(&self) -> Outcome<Box<dyn Ledger>> {
        match self.store {
            Competitor::Store(rival) => {
                let store = rivals::open_at(rival, &self.path, Class::of(self.domain), self.max_bytes)?;
                Ok(Box::new(StoreLedger(store)))
            }
            _ => {
                let pool = Pool::options().domain(self.domain).open(&self.path)?;
                let tree = pool.tree_options(TREE).open()?;
                Ok(Box::new(PoolLedger::new(pool, tree)))
            }
        }
    }

    /// Returns a failure of the store.
    pub fn failed(&self, what: impl std::fmt::Display) -> Failure {
        Failure::new(Exit::Failed, format!("{}: {what}", self.name()))
    }
}
