//! Space usage, leaf fill and key/value sizes.

use std::ops::Bound;

use bristlecone::dynamic::Tree;
use bristlecone::{Pool, TreeUsage};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use serde_json::{Value, json};

use super::leaves::Leaves;
use super::lengths::{Lengths, ratio};
use crate::store::{self, TreeInfo};
use crate::table::{Align, Table};

/// Space usage of one tree.
pub struct TreeSpace {
    entries: u64,
    leaves: u64,
    fill: Leaves,
    /// `None` in a pool that is followed: the memory is the writer's.
    dram_bytes: Option<u64>,
    usage: TreeUsage,
    keys: Lengths,
    values: Lengths,
}

impl TreeSpace {
    /// Reads every entry; calls `each` for each.
    pub fn read(pool: &Pool, name: &str, tree: &Tree, each: &mut dyn FnMut()) -> Outcome<Self> {
        let (mut keys, mut values) = (Lengths::default(), Lengths::default());
        store::scan(tree, (Bound::Unbounded, Bound::Unbounded), false, &mut |key, value| {
            keys.add(crate::datum::content_bytes(key));
            values.add(crate::datum::content_bytes(value));
            each();
            interrupt::check("nothing was changed").map(|()| true)
        })?;
        let usage = pool.usage(name)?;
        let fill = Leaves(tree.leaves_by_items()?);
        let (leaves, dram_bytes) = if pool.info().following {
            (fill.0.values().sum(), None)
        } else {
            let stats = tree.stats()?;
            (stats.leaves, Some(stats.dram_bytes))
        };
        Ok(Self { entries: keys.count(), leaves, fill, dram_bytes, usage, keys, values })
    }

    fn pool_bytes(&self) -> u64 {
        let TreeUsage { leaf_bytes, log_bytes, record_bytes, .. } = self.usage;
        leaf_bytes + log_bytes + record_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.keys.total() + self.values.total()
    }

    /// Adds the figures to the tree's object.
    pub fn add_to(&self, object: &mut Value) {
        object["entries"] = self.entries.into();
        object["leaves"] = self.leaves.into();
        object["entries_per_leaf"] = ratio(self.entries, self.leaves).into();
        object["leaves_by_entries"] = self.fill.json();
        object["data_bytes"] = self.data_bytes().into();
        object["pool_bytes"] = self.pool_bytes().into();
        object["fill"] = ratio(self.data_bytes(), self.pool_bytes()).into();
        object["leaf_bytes"] = self.usage.leaf_bytes.into();
        object["log_bytes"] = self.usage.log_bytes.into();
        object["record_bytes"] = self.usage.record_bytes.into();
        object["index_bytes"] = self.dram_bytes.into();
        object["keys"] = self.keys.json();
        object["values"] = self.values.json();
    }

    pub fn print(&self, info: &TreeInfo, output: &mut Output) -> Outcome {
        let TreeInfo { name, design, key_kind, value_kind, .. } = info;
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
pub struct Space {
    file: u64,
    max: u64,
    used: TreeUsage,
    free: u64,
}

impl Space {
    pub fn of(pool: &Pool) -> Outcome<Self> {
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

    pub fn json(&self) -> Value {
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

    pub fn print(&self, output: &mut Output) -> Outcome {
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
