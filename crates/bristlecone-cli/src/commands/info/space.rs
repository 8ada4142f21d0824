//! `bristlecone stat`: shows space usage, leaf fill and key/value sizes.





use std::ops::Bound;

use bristlecone::{Pool, TreeUsage};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted, grouped};
use bristlecone_cli::size;
use clap::Args;
use serde_json::{Value, json};

use super::leaves::Leaves;
use super::lengths::Lengths;
use crate::open::ReadArgs;
use crate::store::{self, TreeInfo};
use crate::table::{Align, Table};

/// Show space usage, leaf fill and key/value sizes
///
/// Reads every entry. Space is counted in whole chunks, so a small tree may seem large.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone stat trees.pool
  bristlecone stat trees.pool ages --json | jq .trees[0].keys.mean")]
pub struct Stat {
    #[command(flatten)]
    pool: ReadArgs,
    /// Only this tree.
    tree: Option<String>,
}

impl Stat {
    pub fn run(&self, output: &mut Output) -> Outcome {
        show(&self.pool.open_or_follow()?, self.tree.as_deref(), output)
    }
}

/// Statistics of one tree.
struct TreeStat {
    info: TreeInfo,
    entries: u64,
    leaves: u64,
    fill: Leaves,
    /// `None` in a pool that is followed: the memory is the writer's.
    dram_bytes: Option<u64>,
    usage: TreeUsage,
    keys: Lengths,
    values: Lengths,
}

/// Reads all trees, or one, and prints the statistics.
pub fn show(pool: &Pool, tree: Option<&str>, output: &mut Output) -> Outcome {
    let trees = match tree {
        Some(name) => vec![store::find(pool, name)?],
        None => store::specs(pool)?.into_iter().map(TreeInfo::new).collect::<Outcome<_>>()?,
    };
    let bar = output.progress("reading", None);
    let read = trees.into_iter().map(|info| {
        read(pool, info, &mut || {
            bar.inc(1);
            interrupt::check("nothing was changed")
        })
    });
    let trees = read.collect::<Outcome<Vec<_>>>()?;
    bar.finish_and_clear();
    let space = Space::of(pool)?;
    if output.json() {
        let trees: Vec<_> = trees.iter().map(TreeStat::json).collect();
        return output.value(&json!({ "bytes": space.json(), "trees": trees }));
    }
    if tree.is_none() {
        space.print(output)?;
    }
    trees.iter().enumerate().try_for_each(|(at, each)| {
        if at > 0 || tree.is_none() {
            output.line("")?;
        }
        each.print(output)
    })
}

fn read(pool: &Pool, info: TreeInfo, each: &mut dyn FnMut() -> Outcome) -> Outcome<TreeStat> {
    let tree = store::tree(pool, &info.name)?;
    let (mut keys, mut values) = (Lengths::default(), Lengths::default());
    store::scan(&tree, (Bound::Unbounded, Bound::Unbounded), false, &mut |key, value| {
        keys.add(crate::datum::content_bytes(key));
        values.add(crate::datum::content_bytes(value));
        each().map(|()| true)
    })?;
    let usage = pool.usage(&info.name)?;
    let fill = Leaves(tree.try_leaves_by_items()?);
    let (leaves, dram_bytes) = if pool.info().following {
        (fill.0.values().sum(), None)
    } else {
        let stats = tree.stats();
        (stats.leaves, Some(stats.dram_bytes))
    };
    Ok(TreeStat { info, entries: keys.count(), leaves, fill, dram_bytes, usage, keys, values })
}

impl TreeStat {
    fn pool_bytes(&self) -> u64 {
        let TreeUsage { leaf_bytes, log_bytes, record_bytes, .. } = self.usage;
        leaf_bytes + log_bytes + record_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.keys.total() + self.values.total()
    }

    fn json(&self) -> Value {
        json!({
            "name": self.info.name,
            "design": self.info.design.to_string(),
            "key": self.info.key_kind,
            "value": self.info.value_kind,
            "entries": self.entries,
            "leaves": self.leaves,
            "entries_per_leaf": ratio(self.entries, self.leaves),
            "leaves_by_entries": self.fill.json(),
            "data_bytes": self.data_bytes(),
            "pool_bytes": self.pool_bytes(),
            "fill": ratio(self.data_bytes(), self.pool_bytes()),
            "leaf_bytes": self.usage.leaf_bytes,
            "log_bytes": self.usage.log_bytes,
            "record_bytes": self.usage.record_bytes,
            "index_bytes": self.dram_bytes,
            "keys": self.keys.json(),
            "values": self.values.json(),
        })
    }

    fn print(&self, output: &mut Output) -> Outcome {
        let TreeInfo { name, design, key_kind, value_kind, .. } = &self.info;
        let mut title = Table::new(&[("", Align::Left)]);
        title.row([format!("{name}: {design}, {key_kind} -> {value_kind}")]);
        title.print(output)?;
        let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Left)]);
        let mut row = |what: &str, number: String, more: String| table.row([what.to_owned(), number, more]);
        row("  entries", grouped(self.entries), String::new());
        let each = format!("{:.1} entries each", ratio(self.entries, self.leaves));
        row("  leaves", grouped(self.leaves), each);
        let fill =
            format!("{:.0} % of the tree's space", ratio(self.data_bytes(), self.pool_bytes()) * 100.0);
        row("  data", size::show(self.data_bytes()), fill);
        row("  in leaves", size::show(self.usage.leaf_bytes), String::new());
        row("  in logs", size::show(self.usage.log_bytes), String::new());
        row("  in records", size::show(self.usage.record_bytes), "keys and values out of line".to_owned());
        if let Some(bytes) = self.dram_bytes {
            row("  index", size::show(bytes), "in memory, while the tree is open".to_owned());
        }
        table.print(output)?;
        self.fill.print(output)?;
        self.keys.print("keys", output)?;
        self.values.print("values", output)
    }
}

/// Usage of a pool's file, in bytes.
struct Space {
    file: u64,
    max: u64,
    used: TreeUsage,
    free: u64,
}

impl Space {
    fn of(pool: &Pool) -> Outcome<Self> {
        let info = pool.info();
        let mut used = TreeUsage::default();
        for spec in store::specs(pool)? {
            let usage = pool.usage(&spec.name)?;
            used.leaf_bytes += usage.leaf_bytes;
            used.log_bytes += usage.log_bytes;
            used.record_bytes += usage.record_bytes;
        }
        let free = info.chunks_free * info.chunk_bytes;
        Ok(Self { file: info.file_bytes, max: info.max_bytes, used, free })
    }

    /// Returns the bytes that are neither owned by trees nor free: headers, directory, descriptors.
    fn own(&self) -> u64 {
        let others = self.used.leaf_bytes + self.used.log_bytes + self.used.record_bytes + self.free;
        self.file.saturating_sub(others)
    }

    fn json(&self) -> Value {
        json!({
            "file": self.file,
            "max": self.max,
            "leaves": self.used.leaf_bytes,
            "logs": self.used.log_bytes,
            "records": self.used.record_bytes,
            "free": self.free,
            "own": self.own(),
        })
    }

    fn print(&self, output: &mut Output) -> Outcome {
        let mut table = Table::new(&[
            ("space", Align::Left),
            ("bytes", Align::Right),
            ("share", Align::Right),
            ("", Align::Left),
        ]);
        let rows = [
            ("leaves", self.used.leaf_bytes, "nodes of trees"),
            ("logs", self.used.log_bytes, "write-ahead logs of trees"),
            ("records", self.used.record_bytes, "keys and values out of line"),
            ("free", self.free, "to be used before the file grows"),
            ("own", self.own(), "the pool's own: headers, directory, descriptors"),
        ];
        for (what, bytes, more) in rows {
            let share = format!("{:.1} %", ratio(bytes, self.file) * 100.0);
            table.row([what.to_owned(), size::show(bytes), share, more.to_owned()]);
        }
        let more = format!("of up to {}", size::show(self.max));
        table.row(["file".to_owned(), size::show(self.file), "100.0 %".to_owned(), more]);
        table.print(output)
    }
}

pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns `4 to 12 bytes`, or `8 bytes`.
pub fn span(least: u64, most: u64) -> String {
    if least == most { counted(most, "byte", "bytes") } else { format!("{least} to {most} bytes") }
}
