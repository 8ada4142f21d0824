//! `bristlecone info`: describes a pool.

mod bars;
mod leaves;
mod lengths;
pub mod space;
pub mod trees;

use std::path::Path;

use bristlecone::{Error, Issue, Pool, PoolInfo, TreeEntry};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::medium;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::open::ReadArgs;

/// Describe a pool: sizes, durability, page size in use
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone info trees.pool
  bristlecone info trees.pool --json | jq .closed_cleanly")]
pub struct Info {
    #[command(flatten)]
    pool: ReadArgs,
}

impl Info {
    pub fn run(&self, output: &mut Output) -> Outcome {
        describe(&self.pool.open_or_follow()?, &self.pool.pool.path, output)
    }
}

/// Prints the description of the pool at this path.
pub fn describe(pool: &Pool, path: &Path, output: &mut Output) -> Outcome {
    let (info, trees) = (pool.info(), pool.trees()?);
    let (medium, damaged) = (medium::name(path), damaged_trees(pool, &info, &trees)?);
    if output.json() {
        let found = |(tree, found): &(Option<&str>, &Issue)| json!({ "tree": tree, "location": found.location, "what": found.what });
        let of_pool = info.issues.iter().map(|issue| (None, issue));
        let of_trees = damaged.iter().map(|(tree, issue)| (Some(tree.as_str()), issue));
        let issues: Vec<_> = of_pool.chain(of_trees).map(|issue| found(&issue)).collect();
        output.value(&json!({
            "pool": path,
            "uuid": info.uuid,
            "format_version": info.version,
            "medium": medium,
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
            "huge_page_bytes": info.huge_bytes,
            "trees": trees.len(),
            "issues": issues,
        }))?;
    } else {
        output.line(format_args!("pool       {}", path.display()))?;
        output.line(format_args!("uuid       {}, format {}", info.uuid, info.version))?;
        output.line(format_args!("medium     {medium}"))?;
        output.line(medium::promise(&info).replacen("domain ", "domain     ", 1))?;
        if info.following {
            output.line("followed   another process writes to it; the figures are current")?;
        }
        let closed = match (info.was_clean, info.read_only) {
            _ if info.following => "no: it is open",
            (true, _) if info.index_was_kept => "yes, with its index in shared memory",
            (true, _) => "yes",
            (false, false) => "no: all acknowledged writes are recovered",
            (false, true) => {
                "no: each open recovers all acknowledged writes; the first writer updates the file"
            }
        };
        output.line(format_args!("closed     {closed}"))?;
        let (bytes, max) = (size::show(info.file_bytes), size::show(info.max_bytes));
        output.line(format_args!("size       {bytes} of up to {max}"))?;
        let (chunks, each) = (grouped(info.chunks), size::show(info.chunk_bytes));
        output.line(format_args!("chunks     {chunks} of {each}, {} free", grouped(info.chunks_free)))?;
        output.line(format_args!("pages      {}", medium::pages(&info)))?;
        output.line(format_args!("trees      {}", trees.len()))?;
        for (tree, Issue { what, location, .. }) in &damaged {
            output.line(format_args!("damaged    {tree}: {what} at {location}"))?;
        }
    }
    Ok(())
}

/// Returns each tree that cannot be opened because it is damaged, and the first issue.
fn damaged_trees(pool: &Pool, info: &PoolInfo, trees: &[TreeEntry]) -> Outcome<Vec<(String, Issue)>> {
    let mut damaged = Vec::new();
    // An open for writing recovers the trees that it uses. Those of a followed pool are in the memory of its writer.
    if !info.read_only || info.following {
        return Ok(damaged);
    }
    for TreeEntry { spec, .. } in trees {
        interrupt::check("nothing was changed")?;
        let issue = match pool.dynamic_tree(&spec.name) {
            Ok(tree) if tree.is_salvaged() => tree.damage().into_iter().next(),
            Err(Error::Corrupted { what, location }) => Some(Issue::new(location, what)),
            _ => None,
        };
        damaged.extend(issue.map(|issue| (spec.name.clone(), issue)));
    }
    Ok(damaged)
}
