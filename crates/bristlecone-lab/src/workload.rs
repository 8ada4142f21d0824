//! Workloads as arguments: what `bench` and `count` share.

use bristlecone_baselines::AnyDesign;
use bristlecone_cli::arguments::option;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::size;
use clap::Args;
use serde_json::{Value, json};

use crate::bench::data::Shape;
use crate::bench::stream::Order;
use crate::bench::workload::{self, Distribution, Mix, Op, Phase, Preset};

/// The part of `--help` on operations.
pub const OPERATIONS_HELP: &str = "\
Operations of --mix: insert and insert_new add keys, get, update, upsert, scan (of 100) and
read_modify_write use keys that are there, remove takes whatever key the distribution gives. insert and
upsert do not return what was there; the others do. New keys lie evenly in the key range, or with
sequential behind it; with hotspot:KEYS:OPS the share OPS of them lies in the lowest part of it, the
share KEYS, so that hotspot:0.2:0.8 is 80 % of the inserts into 20 % of the range.
The scan phase of micro has a tenth of the operations.";

#[derive(Args, Debug)]
pub struct Workload {
    /// The design: sstree, nbtree, cclbtree, lodgetree or wotree, or one of the baselines native, wbtree,
    /// fastfair, lbtree, fptree, utree, flatstore and dptree.
    #[arg(long, default_value = "sstree")]
    pub design: AnyDesign,
    /// An option of the design, as docs/designs lists them; may be given several times.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    pub options: Vec<(String, u64)>,
    /// Number of keys to load, such as 10M.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = size::parse_count)]
    pub records: u64,
    /// Operations of each phase after the load [default: as many as records]
    #[arg(long, value_name = "M", value_parser = size::parse_count)]
    operations: Option<u64>,
    /// Run one phase after the load, of operations in these proportions, such as get=90,insert=10.
    #[arg(long, value_name = "OP=SHARE,...", conflicts_with = "preset")]
    mix: Option<Mix>,
    /// Run a known sequence of phases after the load.
    #[arg(long, value_enum, default_value = "micro")]
    preset: Preset,
    /// Which keys operations take: uniform, sequential, zipf:THETA, selfsimilar:SKEW,
    /// hotspot:KEYS:OPS or latest:THETA [default: uniform, or what the preset says]
    #[arg(long, value_name = "KIND")]
    pub distribution: Option<Distribution>,
    /// Type of the keys: u64, or byte strings as bytes:LENGTH or bytes:MIN-MAX.
    #[arg(long, value_name = "SHAPE", default_value = "u64", value_parser = Shape::of_keys)]
    pub key: Shape,
    /// Type of the values: u64, or byte strings as bytes:LENGTH or bytes:MIN-MAX.
    #[arg(long, value_name = "SHAPE", default_value = "u64", value_parser = Shape::of_values)]
    pub value: Shape,
    /// Seed of the keys and operations: the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Workload {
    fn operations(&self) -> u64 {
        self.operations.unwrap_or(self.records)
    }

    /// Returns the load and the phases that follow it.
    pub fn phases(&self) -> Outcome<Vec<Phase>> {
        if self.records == 0 || self.operations() == 0 {
            return Err(Failure::usage("--records and --operations must be 1 or more"));
        }
        let (mix, distribution) = (self.mix.as_ref(), self.distribution);
        Ok(workload::phases(self.preset, mix, distribution, self.records, self.operations()))
    }

    /// Returns where keys lie.
    pub fn order(&self) -> Order {
        match self.distribution {
            Some(Distribution::Sequential) => Order::Sequential,
            Some(Distribution::Hotspot { keys, ops }) => Order::Hotspot { loaded: self.records, keys, ops },
            _ => Order::Scattered,
        }
    }

    /// Returns the bytes that a pool may grow to so that the phases fit. It grows as it is filled; the maximum
    /// only has to be large enough.
    pub fn max_bytes(&self, phases: &[Phase]) -> u64 {
        let adds = |phase: &&Phase| phase.mix.has(Op::Insert) || phase.mix.has(Op::InsertNew);
        let added: u64 = phases.iter().filter(adds).map(|phase| phase.operations).sum();
        let bytes_each = 64 + 4 * (self.key.mean_bytes() + self.value.mean_bytes());
        (1 << 30) + added.saturating_mul(bytes_each)
    }

    /// Returns the arguments in JSON.
    pub fn json(&self) -> Value {
        let preset =
            clap::ValueEnum::to_possible_value(&self.preset).map(|value| value.get_name().to_owned());
        json!({
            "records": self.records,
            "operations": self.operations(),
            "preset": preset.filter(|_| self.mix.is_none()),
            "mix": self.mix.as_ref().map(Mix::to_string),
            "distribution": self.distribution.map(|distribution| distribution.to_string()),
        })
    }
}
