//! Designs with options.

use std::fmt;

use bristlecone::Design::{self, CclBTree, LodgeTree, NbTree, SsTree, WoTree};
use bristlecone::{Pool, TreeOptions};

/// A design with options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The design.
    pub design: Design,
    /// The property that distinguishes the configuration from others of the design.
    pub name: &'static str,
    /// Options that differ from their defaults.
    pub options: &'static [(&'static str, u64)],
    /// Whether a dozen operations cause every structure change in chunks of 4 KiB. Logs of these configurations have few
    /// entries to a chunk of any size.
    pub tiny: bool,
}

const fn configuration(
    design: Design,
    name: &'static str,
    options: &'static [(&'static str, u64)],
) -> Configuration {
    Configuration { design, name, options, tiny: false }
}

const fn tiny(design: Design, name: &'static str, options: &'static [(&'static str, u64)]) -> Configuration {
    Configuration { design, name, options, tiny: true }
}

/// Shapes whose logs have few entries to a chunk, for small chunks. Of tiny ones, the one with the most kinds of
/// structure changes comes first.
#[rustfmt::skip]
pub const SHORT_LOGS: &[Configuration] = &[
    tiny(CclBTree, "4", &[("leaf_slots", 4), ("log_entries", 5), ("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)]),
    tiny(CclBTree, "6", &[("leaf_slots", 6), ("batch", 4), ("log_entries", 7), ("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)]),
    tiny(CclBTree, "all-logged", &[("leaf_slots", 5), ("batch", 1), ("log_entries", 4), ("log_all", 1), ("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)]),
    tiny(CclBTree, "naive", &[("leaf_slots", 4), ("log_entries", 5), ("naive_collection", 1), ("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)]),
    tiny(CclBTree, "restless", &[("leaf_slots", 5), ("batch", 3), ("log_entries", 1), ("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)]),
    tiny(LodgeTree, "3", &[("node_slots", 6), ("leaf_slots", 3), ("log_entries", 5), ("inner_bytes", 256), ("split_nodes", 3)]),
    tiny(LodgeTree, "7", &[("node_slots", 9), ("leaf_slots", 7), ("split_items", 6), ("log_entries", 7), ("inner_bytes", 256)]),
    tiny(LodgeTree, "single", &[("node_slots", 6), ("leaf_slots", 3), ("flush_leaves", 1), ("log_entries", 8), ("inner_bytes", 256), ("burst_ratio", 5)]),
];

/// Every other configuration. The first of a design is its default.
#[rustfmt::skip]
pub const CONFIGURATIONS: &[Configuration] = &[
    configuration(SsTree, "default", &[]),
    tiny(SsTree, "3", &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256)]),
    tiny(SsTree, "2", &[("subnode_bytes", 128), ("max_subnodes", 2), ("inner_bytes", 256)]),
    tiny(SsTree, "1", &[("subnode_bytes", 128), ("max_subnodes", 1), ("inner_bytes", 256)]),
    tiny(SsTree, "4", &[("subnode_bytes", 192), ("max_subnodes", 4), ("inner_bytes", 256)]),
    tiny(SsTree, "delegated", &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256), ("delegate_fingerprints", 1)]),
    tiny(SsTree, "unmoved", &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256), ("move_items", 0)]),
    tiny(SsTree, "5", &[("subnode_bytes", 128), ("max_subnodes", 5), ("inner_bytes", 256)]),
    configuration(SsTree, "5-wide", &[("subnode_bytes", 192), ("max_subnodes", 5)]),
    configuration(SsTree, "5-delegated", &[("subnode_bytes", 192), ("max_subnodes", 5), ("delegate_fingerprints", 1)]),
    configuration(SsTree, "2-wide", &[("subnode_bytes", 128), ("max_subnodes", 2)]),
    configuration(SsTree, "4-small", &[("subnode_bytes", 128), ("max_subnodes", 4), ("inner_bytes", 256)]),
    configuration(SsTree, "unmoved-wide", &[("subnode_bytes", 192), ("max_subnodes", 3), ("move_items", 0)]),
    configuration(SsTree, "4-wide", &[("max_subnodes", 4)]),
    configuration(SsTree, "delegated-wide", &[("max_subnodes", 4), ("delegate_fingerprints", 1), ("inner_bytes", 4096)]),

    configuration(NbTree, "default", &[]),
    tiny(NbTree, "7", &[("block_bytes", 128), ("inner_bytes", 256)]),
    tiny(NbTree, "15", &[("block_bytes", 256), ("inner_bytes", 256)]),
    tiny(NbTree, "single-layer", &[("block_bytes", 256), ("layers", 1), ("inner_bytes", 256)]),
    tiny(NbTree, "locked", &[("block_bytes", 128), ("locking", 1), ("inner_bytes", 256)]),
    tiny(NbTree, "all-locked", &[("block_bytes", 128), ("locking", 2), ("inner_bytes", 256)]),
    tiny(NbTree, "single-layer-locked", &[("block_bytes", 128), ("layers", 1), ("locking", 2), ("inner_bytes", 256)]),
    configuration(NbTree, "single-layer-wide", &[("block_bytes", 256), ("layers", 1)]),
    configuration(NbTree, "locked-512", &[("block_bytes", 512), ("locking", 1), ("inner_bytes", 256)]),
    configuration(NbTree, "all-locked-wide", &[("block_bytes", 128), ("locking", 2)]),

    configuration(CclBTree, "default", &[]),
    tiny(CclBTree, "unbuffered", &[("leaf_slots", 4), ("batch", 0), ("inner_bytes", 256), ("collector_threads", 0)]),
    configuration(CclBTree, "4-wide", &[("leaf_slots", 4), ("inner_bytes", 256), ("log_entries", 40)]),
    configuration(CclBTree, "batch-5", &[("batch", 5), ("log_entries", 300), ("collector_threads", 0)]),
    configuration(CclBTree, "batch-8", &[("batch", 8), ("leaf_slots", 10), ("log_entries", 20), ("collector_threads", 0)]),
    configuration(CclBTree, "batch-0", &[("batch", 0), ("leaf_slots", 8)]),
    configuration(CclBTree, "batch-3", &[("batch", 3), ("leaf_slots", 9), ("log_percent", 500)]),
    configuration(CclBTree, "batch-6", &[("batch", 6), ("leaf_slots", 12), ("log_entries", 60)]),
    configuration(CclBTree, "batch-7", &[("batch", 7), ("leaf_slots", 13), ("log_all", 1)]),
    configuration(CclBTree, "all-logged-wide", &[("batch", 1), ("log_all", 1), ("leaf_slots", 5), ("log_entries", 25)]),
    configuration(CclBTree, "naive-wide", &[("naive_collection", 1), ("leaf_slots", 7), ("log_entries", 30)]),

    configuration(WoTree, "default", &[]),
    tiny(WoTree, "2", &[("node_lines", 2)]),
    tiny(WoTree, "4", &[("node_lines", 4)]),
    tiny(WoTree, "32", &[("node_lines", 32)]),
    tiny(WoTree, "logged", &[("node_lines", 2), ("log_leaves", 1)]),
    configuration(WoTree, "8", &[("node_lines", 8)]),
    configuration(WoTree, "logged-8", &[("node_lines", 8), ("log_leaves", 1)]),

    configuration(LodgeTree, "default", &[]),
    configuration(LodgeTree, "3-wide", &[("node_slots", 6), ("leaf_slots", 3), ("inner_bytes", 256), ("log_entries", 40), ("split_nodes", 3)]),
    configuration(LodgeTree, "7-wide", &[("node_slots", 10), ("leaf_slots", 7), ("flush_leaves", 1), ("log_entries", 500)]),
    configuration(LodgeTree, "36", &[("node_slots", 36), ("leaf_slots", 4), ("flush_leaves", 8), ("split_nodes", 8)]),
    configuration(LodgeTree, "whole", &[("node_slots", 20), ("leaf_slots", 6), ("flush_leaves", 36)]),
    configuration(LodgeTree, "12", &[("node_slots", 12), ("split_items", 10), ("log_entries", 2000), ("split_nodes", 2), ("burst_ratio", 1000)]),
];

/// Returns every configuration.
pub fn configurations() -> impl Iterator<Item = Configuration> {
    SHORT_LOGS.iter().chain(CONFIGURATIONS).copied()
}

impl Configuration {
    /// Returns the configuration of this name, like `nbtree-7`.
    pub fn named(name: &str) -> Option<Self> {
        configurations().find(|configuration| configuration.to_string() == name)
    }

    /// Returns the value of an option, if it differs from its default.
    pub fn option(&self, name: &str) -> Option<u64> {
        self.options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value)
    }

    /// Returns options to create or open a tree of this configuration.
    pub fn tree(&self, pool: &Pool, name: &str) -> TreeOptions {
        let options = pool.tree_options(name).design(self.design);
        self.options.iter().fold(options, |options, &(name, value)| options.option(name, value))
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.design, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bristlecone::Allowed;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_option_of_every_design_has_another_value_than_its_default() {
        for design in Design::ALL {
            for option in design.options() {
                let configurations = configurations().filter(|configuration| configuration.design == *design);
                let values: BTreeSet<_> =
                    configurations.filter_map(|configuration| configuration.option(option.name)).collect();
                let (name, default) = (option.name, option.default);
                assert!(values.iter().any(|value| *value != default), "{design}: {name} is always {default}");
            }
        }
    }

    fn doc(name: &str) -> String {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        std::fs::read_to_string(docs.join(name)).unwrap()
    }

    /// Returns whether a line of a design's page states the values that an option may have.
    fn says(line: &str, allowed: Allowed) -> bool {
        let numbers: BTreeSet<u64> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        match allowed {
            Allowed::OneOf(values) => values.iter().all(|value| numbers.contains(value)),
            Allowed::Range(least, u64::MAX) => line.contains(&format!("{least} or more")),
            Allowed::Range(0, most) if most > 1 << 20 => numbers.contains(&0),
            Allowed::Range(least, most) => numbers.contains(&least) && numbers.contains(&most),
            Allowed::Multiples(least, most, of) => {
                [least, most, of].iter().all(|value| numbers.contains(value))
            }
            other => panic!("{other:?} is nothing that a page can say"),
        }
    }

    #[test]
    fn the_docs_have_every_option_and_its_default() {
        for design in Design::ALL {
            let page = doc(&format!("designs/{design}.md"));
            let listed = |line: &&str| line.starts_with("- `") && !line.contains(":**");
            let listed: Vec<_> = page.lines().filter(listed).collect();
            for option in design.options() {
                let line = listed.iter().find(|line| line.starts_with(&format!("- `{}`", option.name)));
                let line = line.unwrap_or_else(|| panic!("docs/designs/{design}.md has no {}", option.name));
                let default = format!("**{}**", option.default);
                assert!(line.contains(&default), "{design}: {line}, where it is {option}");
                assert!(says(line, option.allowed), "{design}: {line}, where it is {option}");
            }
            assert_eq!(listed.len(), design.options().count(), "docs/designs/{design}.md: {listed:?}");
        }
    }

    /// The directory stores options by their index, which format.md lists.
    #[test]
    fn the_format_has_every_option_in_its_place() {
        let format = doc("format.md");
        let rows = format.lines().filter(|line| line.starts_with("| ")).map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let name: String = cells[1].to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
            (name, cells)
        });
        let rows: BTreeMap<_, _> = rows.collect();
        for design in Design::ALL {
            let row = rows.get(design.name()).unwrap_or_else(|| panic!("format.md has no row of {design}"));
            let names: Vec<_> = row[2].split(", ").map(|name| name.trim_matches('`')).collect();
            let options: Vec<_> = design.options().map(|option| option.name).collect();
            assert_eq!(names, options, "format.md: {row:?}");
        }
    }

    #[test]
    fn shapes_have_each_value_of_options_with_few() {
        let few: [(Design, &str, &[u64]); 8] = [
            (SsTree, "max_subnodes", &[1, 2, 3, 4, 5]),
            (SsTree, "subnode_bytes", &[128, 192]),
            (NbTree, "locking", &[1, 2]),
            (NbTree, "block_bytes", &[128, 256, 512]),
            (CclBTree, "batch", &[0, 1, 3, 4, 5, 6, 7, 8]),
            (LodgeTree, "flush_leaves", &[1, 8, 36]),
            (LodgeTree, "split_nodes", &[2, 3, 8]),
            (WoTree, "node_lines", &[2, 4, 8, 32]),
        ];
        for (design, option, values) in few {
            for value in values {
                let has = |configuration: Configuration| {
                    configuration.design == design && configuration.option(option) == Some(*value)
                };
                assert!(configurations().any(has), "{design}: {option} is never {value}");
            }
        }
    }

    #[test]
    fn shapes_have_unique_names_and_defaults_first() {
        let names: BTreeSet<_> = configurations().map(|configuration| configuration.to_string()).collect();
        assert_eq!(names.len(), configurations().count());
        for design in Design::ALL {
            let mut configurations =
                CONFIGURATIONS.iter().filter(|configuration| configuration.design == *design);
            assert!(
                configurations.next().is_some_and(|configuration| configuration.options.is_empty()),
                "{design}"
            );
            let is_tiny =
                |configuration: Configuration| configuration.design == *design && configuration.tiny;
            assert!(super::configurations().any(is_tiny), "{design} has nothing to explore");
        }
    }
}
