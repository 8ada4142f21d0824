//! `bristlecone info`: describes a pool and its trees.

mod bars;
mod leaves;
mod lengths;
mod space;
mod trees;

use std::path::Path;

use bristlecone::{JournalStatus, Pool, PoolInfo, Standby};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::medium;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use clap::Args;
use serde_json::{Value, json};

use self::space::Space;
use self::trees::Trees;
use super::standby;
use crate::open::ReadArgs;
use crate::{issues, journal};

/// Describe a pool and its trees
///
/// Shows the size, durability and page size of the pool, and the entries, kinds, design and options of its trees. If a
/// tree is damaged or cannot be read, its number of entries is `?`, and the exit code is that of the first such error.
///
/// Of a pool with a journal it shows the LSN up to which entries are durable, and the bytes since the last checkpoint.
/// While a process writes to the pool, these figures are current, and the durability and the duration of syncs are shown
/// as well. Otherwise they are those of the journal's files.
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal, lines are cut to 100 columns; to anything else, and with --json, they are complete.

Examples:
  bristlecone info trees.pool
  bristlecone info trees.pool ages
  bristlecone info trees.pool --space
  bristlecone info trees.pool --json | jq .closed_cleanly
  bristlecone info trees.pool ages --json | jq .trees[0].entries"
)]
pub struct Info {
    #[command(flatten)]
    pool: ReadArgs,
    #[command(flatten)]
    what: InfoArgs,
}

/// The parts to describe.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// Only this tree.
    tree: Option<String>,
    /// Also show space usage, leaf fill and key/value sizes; reads every entry. Space is counted in whole chunks, so a
    /// small tree may seem large.
    #[arg(long)]
    space: bool,
}

impl Info {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let folder = self.pool.folder.journal.as_deref();
        self.what.run(&self.pool.open_or_follow()?, &self.pool.pool.path, folder, output)
    }
}

impl InfoArgs {
    /// Prints the description of the pool at this path, or of one of its trees; `folder` is that of the journal, if it was
    /// given.
    pub fn run(&self, pool: &Pool, path: &Path, folder: Option<&Path>, output: &mut Output) -> Outcome {
        let info = pool.info();
        let standby = Standby::status_of(path)?;
        let journal = journal::status(pool, path, folder)?;
        // One that has taken over has a journal.
        let standby = standby.filter(|_| journal.is_none());
        let trees = Trees::read(pool, self.tree.as_deref(), self.space, output)?;
        let space = self.space.then(|| Space::of(pool)).transpose()?;
        if output.json() {
            let mut object = describe(&info, path);
            object["huge_page_bytes"] = pool.huge_bytes().into();
            object["journal"] = journal::json(journal.as_ref());
            object["standby"] = standby.as_ref().map_or(Value::Null, standby::status_json);
            object["trees"] = trees.json();
            object["issues"] = all_issues(&info, &trees);
            if let Some(space) = &space {
                object["bytes"] = space.json();
            }
            output.value(&object)?;
        } else {
            if self.tree.is_none() {
                let pages = medium::pages(&info, pool.huge_bytes());
                print(&info, (path, &pages), journal.as_ref(), trees.len(), output)?;
                standby.iter().map(standby::line).try_for_each(|line| output.line(line))?;
            }
            trees.print_damage(output)?;
            if self.tree.is_none() && trees.len() > 0 {
                output.line("")?;
            }
            trees.print(output)?;
            if let Some(space) = space.filter(|_| self.tree.is_none()) {
                output.line("")?;
                space.print(output)?;
            }
            trees.print_space(output)?;
        }
        trees.failure()
    }
}

fn describe(info: &PoolInfo, path: &Path) -> Value {
    json!({
        "pool": path,
        "uuid": info.uuid,
        "format_version": info.version,
        "medium": medium::name(path),
        "domain": info.domain.to_string(),
        "detected_domain": info.detected.to_string(),
        "survives": info.domain.survives(),
        "warning": info.domain.warning(info.detected),
        "closed_cleanly": info.was_clean,
        "index_was_kept": info.index_was_kept,
        "read_only": info.read_only,
        "following": info.following,
        "file_bytes": info.file_bytes,
        "max_bytes": info.max_bytes,
        "chunk_bytes": info.chunk_bytes,
        "chunks": info.chunks,
        "chunks_free": info.chunks_free,
    })
}

/// Returns the issues of the pool, and the first of each damaged tree.
fn all_issues(info: &PoolInfo, trees: &Trees) -> Value {
    let of_pool = info.issues.iter().map(|issue| (None, issue));
    let of_trees = trees.damaged().map(|(tree, issue)| (Some(tree), issue));
    of_pool.chain(of_trees).map(|(tree, issue)| issues::object(tree, issue)).collect()
}

fn print(
    info: &PoolInfo,
    (path, pages): (&Path, &str),
    journal: Option<&JournalStatus>,
    trees: usize,
    output: &mut Output,
) -> Outcome {
    output.line(format_args!("pool       {}", path.display()))?;
    output.line(format_args!("uuid       {}, format {}", info.uuid, info.version))?;
    output.line(format_args!("medium     {}", medium::name(path)))?;
    output.line(medium::promise(info).replacen("domain ", "domain     ", 1))?;
    if info.following {
        output.line("followed   another process writes to it; the figures are current")?;
    }
    let closed = match (info.was_clean, info.read_only) {
        _ if info.following => "no: it is open",
        (true, _) if info.index_was_kept => "yes, with its index in shared memory",
        (true, _) => "yes",
        (false, false) => "no: all acknowledged writes are recovered",
        (false, true) => "no: each open recovers all acknowledged writes; the first writer updates the file",
    };
    output.line(format_args!("closed     {closed}"))?;
    journal.into_iter().flat_map(journal::lines).try_for_each(|line| output.line(line))?;
    let (bytes, max) = (size::show(info.file_bytes), size::show(info.max_bytes));
    output.line(format_args!("size       {bytes} of up to {max}"))?;
    let (chunks, each) = (grouped(info.chunks), size::show(info.chunk_bytes));
    output.line(format_args!("chunks     {chunks} of {each}, {} free", grouped(info.chunks_free)))?;
    output.line(format_args!("pages      {pages}"))?;
    output.line(format_args!("trees      {trees}"))
}
