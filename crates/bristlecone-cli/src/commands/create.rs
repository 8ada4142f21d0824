//! `bristlecone create`: creates a pool, a tree, or both.

use bristlecone::Pool;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::medium;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::journal;
use crate::open::{PoolArgs, explain};
use crate::tree_args::TreeArgs;

/// Create a pool, a tree in it, or both
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone create /dev/shm/trees.pool --size 64G
  bristlecone create trees.pool --tree ages --value u64
  bristlecone create trees.pool --domain journal --durability interval:100ms
  bristlecone create tenants.pool --chunk-size 4K       for thousands of small trees
  bristlecone create trees.pool --tree visits --key '(str, u32)' --value u64
  bristlecone create trees.pool --tree sessions --value 'Expiring<u64>' --expire-after 15m
  bristlecone create trees.pool --tree log --design lodgetree --key u64 --value bytes")]
pub struct Create {
    #[command(flatten)]
    pool: PoolArgs,
    /// Maximum size of a new pool, for example 64G. The file grows on demand; `bristlecone resize` raises the maximum
    /// later [default: 1T]
    #[arg(long, visible_alias = "max-bytes", value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Chunk size of a new pool, such as 4K for thousands of small trees: a power of two up to 2M
    /// [default: 2M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Create a tree with this name, in a new or existing pool.
    #[arg(long, value_name = "NAME")]
    tree: Option<String>,
    #[command(flatten)]
    shape: TreeArgs,
}

impl Create {
    pub fn run(&self, output: &mut Output) -> Outcome {
        if self.tree.is_none() && self.shape.is_given() {
            return Err(Failure::usage(
                "--design, --key, --value, --option and --expire-after describe a tree: name it with --tree",
            ));
        }
        let (pool, exists) = match self.new_pool() {
            // Another process has created it, perhaps just now.
            Err(Failure::Said { exit: Exit::Usage, .. })
                if (self.tree.is_some() || self.size.is_some()) && self.pool.pool.path.is_file() =>
            {
                (self.existing()?, true)
            }
            made => (made?, false),
        };
        if let Some(name) = &self.tree {
            let created = self.shape.create(&pool, name);
            if created.is_err() && !exists {
                // A pool without the requested tree is removed, after its journal. This happens while it is still
                // locked, so that it cannot be another process's pool.
                let journal = pool.journal_status()?;
                journal.iter().for_each(|journal| journal::remove(&journal.folder));
                let _ = std::fs::remove_file(&self.pool.pool.path);
                pool.simulate_crash();
                return created.map(drop);
            }
            created?;
        }
        let info = pool.info();
        let journal = pool.journal_status()?;
        let path = self.pool.pool.path.display();
        let mut text = String::new();
        if !exists {
            text += &format!(
                "{path}: a pool of up to {}, {}",
                size::show(info.max_bytes),
                medium::promise(&info)
            );
            for line in journal.iter().map(journal::place) {
                text += &format!("\n{line}");
            }
        }
        if let Some(name) = &self.tree {
            let (key, value) = self.shape.kinds();
            let separator = if text.is_empty() { "" } else { "\n" };
            text += &format!(
                "{separator}{name}: {} with keys of kind {key}, values of kind {value}",
                self.shape.design()
            );
        }
        output.either(
            &json!({
                "pool": self.pool.pool.path,
                "created": !exists,
                "max_bytes": info.max_bytes,
                "domain": info.domain.to_string(),
                "durability": journal.as_ref().and_then(|journal| journal.durability).map(|durability| durability.to_string()),
                "journal": journal.as_ref().map(|journal| &journal.folder),
                "tree": self.tree,
            }),
            text,
        )?;
        Ok(pool.close()?)
    }

    fn new_pool(&self) -> Outcome<Pool> {
        let options = self.pool.options();
        let options = self.size.map_or(options.clone(), |size| options.max_bytes(size)).create_new(true);
        let options = self.chunk_size.map_or(options.clone(), |bytes| options.chunk_bytes(bytes));
        let path = &self.pool.pool.path;
        options.open(path).map_err(|error| explain(path, error))
    }

    /// Opens the existing pool, which keeps its sizes.
    fn existing(&self) -> Outcome<Pool> {
        let path = self.pool.pool.path.display();
        if self.size.is_some() {
            return Err(Failure::usage(format!(
                "{path} exists already: drop --size, or raise the maximum with `bristlecone resize`"
            )));
        }
        if self.chunk_size.is_some() {
            return Err(Failure::usage(format!(
                "{path} exists already: drop --chunk-size, or change it with `bristlecone copy`"
            )));
        }
        self.pool.open()
    }
}
