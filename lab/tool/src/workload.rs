//! Workloads as arguments, shared by `bench` and `count`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use bristlecone_baselines::AnyDesign;
use bristlecone_cli::arguments::option;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::grouped;
use bristlecone_cli::size;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::bench::data::Shape;
use crate::bench::input::dataset::Dataset;
use crate::bench::input::trace::Trace;
use crate::bench::ratios::Ratios;
use crate::bench::stream::Order;
use crate::bench::together::Kind;
use crate::bench::workload::{self, Distribution, Mix, Op, Phase, Preset, ScanLength};

/// The part of `--help` on operations.
pub const OPERATIONS_HELP: &str = "\
Operations of --mix: insert and insert_new add keys. get, update, upsert, scan and read_modify_write use existing keys. \
remove takes any key of the distribution. insert and upsert do not return the previous value; the others do. New keys \
are spread evenly over the key range, or with sequential follow it. With hotspot:KEYS:OPS, the share OPS of them lies \
in the lowest part of the range, the share KEYS: hotspot:0.2:0.8 is 80 % of the inserts into 20 % of the range. The \
scan phase of micro has a tenth of the operations. get_many, insert_many, upsert_many and remove_many process --group \
keys at a time, and must be alone in a mix; each key counts as an operation.

Lists: --design, --preset, --records, --key, --value and --threads accept several values, separated by commas. Every \
combination is a run, one after the other.

Every value read is compared with the value written for its key, and every key that should exist must be found. \
Otherwise the command reports the key and fails.

Options of PiBench are accepted by their names there, with underscores, and by their letters: --records (-n), \
--operations (-p), --threads (-t), --key_size (-k), --value_size (-v), --read_ratio (-r), --insert_ratio (-i), \
--update_ratio (-u), --remove_ratio (-d), --scan_ratio (-s), --scan_size, --distribution UNIFORM, SELFSIMILAR or ZIPFIAN \
with --skew, --seed; bench also accepts --pool_path, --pool_size, --sampling_ms, --latency_sampling and --input. As in \
PiBench, an insert fails on a key that exists, and an update on one that does not.";

#[derive(Args, Clone, Debug)]
pub struct Workload {
    /// The design: sstree, nbtree, cclbtree, lodgetree or wotree, or one of the baselines; a list runs each.
    #[arg(long = "design", value_name = "LIST", default_value = "sstree", value_delimiter = ',')]
    designs: Vec<AnyDesign>,
    /// An option of the design, as listed in docs/designs; repeatable.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    pub options: Vec<(String, u64)>,
    /// Number of keys to load, for example 10M; a list runs each.
    #[arg(long, short = 'n', value_name = "LIST", default_value = "1M", value_parser = size::parse_count, value_delimiter = ',')]
    records: Vec<u64>,
    /// Operations of each phase after the load [default: as many as records]
    #[arg(long, short = 'p', value_name = "M", value_parser = size::parse_count)]
    operations: Option<u64>,
    /// Run one phase after the load, of operations in these proportions, for example get=90,insert=10.
    #[arg(long, value_name = "OP=SHARE,...", conflicts_with = "presets")]
    mix: Option<Mix>,
    /// Run a predefined sequence of phases after the load; a list runs each.
    #[arg(long = "preset", id = "presets", value_enum, default_value = "micro", value_delimiter = ',')]
    presets: Vec<Preset>,
    #[command(flatten)]
    ratios: Ratios,
    /// Run the operations of a trace of YCSB; repeatable, run one after the other. Keys that are used before they are
    /// inserted are loaded first.
    #[arg(long = "trace", value_name = "FILE", conflicts_with_all = ["mix", "presets", "records", "operations", "distribution", "dataset", "scan_length"])]
    traces: Vec<PathBuf>,
    /// Distribution of keys: uniform, sequential, zipf:THETA, selfsimilar:SKEW, hotspot:KEYS:OPS or latest:THETA
    /// [default: that of the preset, otherwise uniform]
    #[arg(long, value_name = "KIND")]
    distribution: Option<Distribution>,
    /// The skew of --distribution SELFSIMILAR or ZIPFIAN, as in PiBench.
    #[arg(long, value_name = "FACTOR", requires = "distribution")]
    skew: Option<f64>,
    /// Set of keys: sosd:FILE reads an SOSD file; dense, clustered, lognormal and timestamps generate keys of the
    /// shapes of such files [default: uniform over all 64-bit words]
    #[arg(long = "keys", id = "dataset", value_name = "SET")]
    dataset: Option<Dataset>,
    /// Number of entries of a scan: LENGTH, or MIN-MAX uniformly [default: 100; ycsb-e: 1-100]
    #[arg(long, alias = "scan_size", value_name = "LENGTH")]
    scan_length: Option<ScanLength>,
    /// Type of the keys: u64, or byte strings as bytes:LENGTH, bytes:MIN-MAX or urls; a list runs each.
    #[arg(long = "key", short = 'k', alias = "key_size", value_name = "LIST", default_value = "u64", value_parser = Shape::of_keys, value_delimiter = ',')]
    keys: Vec<Shape>,
    /// Type of the values: u64, or byte strings as bytes:LENGTH or bytes:MIN-MAX; a list runs each.
    #[arg(long = "value", short = 'v', alias = "value_size", value_name = "LIST", default_value = "u64", value_parser = Shape::of_values, value_delimiter = ',')]
    values: Vec<Shape>,
    /// Seed of the keys and operations: the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Workload {
    /// Returns every combination of the lists' values, with one value of each.
    pub fn singles(&self) -> Vec<Self> {
        let mut all = vec![self.clone()];
        all = each(&all, &self.designs, |one, design| one.designs = vec![design]);
        all = each(&all, &self.records, |one, records| one.records = vec![records]);
        all = each(&all, &self.presets, |one, preset| one.presets = vec![preset]);
        all = each(&all, &self.keys, |one, key| one.keys = vec![key]);
        each(&all, &self.values, |one, value| one.values = vec![value])
    }

    /// Returns every design of the list.
    pub fn designs(&self) -> &[AnyDesign] {
        &self.designs
    }

    /// Returns the design; the first one of a list, here and below.
    pub fn design(&self) -> AnyDesign {
        self.designs[0]
    }

    /// Returns the number of loaded keys.
    pub fn records(&self) -> u64 {
        self.records[0]
    }

    /// Returns the type of the keys.
    pub fn key(&self) -> Shape {
        self.keys[0]
    }

    /// Returns the type of the values.
    pub fn value(&self) -> Shape {
        self.values[0]
    }

    /// Returns the preset with atomic changes of several keys, if it is one.
    pub fn together(&self) -> Option<Kind> {
        let kind = match self.presets[0] {
            Preset::Bank => Kind::Bank,
            Preset::Batch => Kind::Batch,
            Preset::Snapshot => Kind::Snapshot,
            _ => return None,
        };
        self.preset().map(|_| kind)
    }

    /// Refuses arguments that these presets do not support.
    ///
    /// # Errors
    ///
    /// If an argument contradicts the preset.
    pub fn check_together(&self) -> Outcome {
        let is_plain = self.key() == Shape::U64
            && self.value() == Shape::U64
            && self.dataset.is_none()
            && self.distribution.is_none()
            && self.scan_length.is_none();
        if is_plain {
            return Ok(());
        }
        Err(Failure::usage(
            "the presets bank, batch and snapshot have words for keys and values, evenly drawn, and scans of their own",
        ))
    }

    /// Returns the number of operations of each phase after the load.
    pub fn operations(&self) -> u64 {
        self.operations.unwrap_or(self.records())
    }

    fn distribution(&self) -> Outcome<Option<Distribution>> {
        match (self.distribution, self.skew) {
            (Some(distribution), Some(skew)) => distribution
                .with_skew(skew)
                .map(Some)
                .map_err(|what| Failure::usage(format!("--skew {skew}: {what}"))),
            (distribution, _) => Ok(distribution),
        }
    }

    /// Returns the load and the phases that follow it.
    pub fn phases(&self) -> Outcome<Vec<Phase>> {
        if !self.traces.is_empty() {
            return self.traced();
        }
        if self.records() == 0 || self.operations() == 0 {
            return Err(Failure::usage("--records and --operations must be 1 or more"));
        }
        let ratios = self.ratios.mix().map_err(Failure::usage)?;
        if ratios.is_some() && self.mix.is_some() {
            return Err(Failure::usage(
                "--mix and ratios of PiBench are two ways to say the same: give one of them",
            ));
        }
        let (mix, distribution) = (ratios.as_ref().or(self.mix.as_ref()), self.distribution()?);
        let sizes = (self.records(), self.operations());
        Ok(workload::phases(self.presets[0], mix, distribution, self.scan_length, sizes))
    }

    /// Returns the phases of traces: each is one, after a load of the keys that must exist.
    fn traced(&self) -> Outcome<Vec<Phase>> {
        let (mut there, mut missing, mut phases) = (HashSet::new(), Trace::default(), Vec::new());
        for path in &self.traces {
            let trace = Trace::read(path)?;
            missing.ids.extend(trace.missing(&mut there));
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            phases.push(Phase::of_trace(&name, Arc::new(trace)));
        }
        if !missing.ids.is_empty() {
            missing.ops = vec![Op::Insert; missing.ids.len()];
            missing.lengths = vec![0; missing.ids.len()];
            phases.insert(0, Phase::of_trace("load", Arc::new(missing)));
        }
        Ok(phases)
    }

    /// Returns the distribution of keys.
    pub fn order(&self, phases: &[Phase]) -> Outcome<Order> {
        if let Some(dataset) = &self.dataset {
            return Ok(Order::Listed(dataset.keys(added(phases), self.seed)?));
        }
        Ok(match self.distribution()? {
            Some(Distribution::Sequential) => Order::Sequential,
            Some(Distribution::Hotspot { keys, ops }) => Order::Hotspot { loaded: self.records(), keys, ops },
            _ => Order::Scattered,
        })
    }

    /// Returns the maximum size of a pool in which the phases fit. The pool grows on demand; the maximum must only be
    /// large enough.
    pub fn max_bytes(&self, phases: &[Phase]) -> u64 {
        let bytes_each = 64 + 4 * (self.key().mean_bytes() + self.value().mean_bytes());
        (1 << 30) + added(phases).saturating_mul(bytes_each)
    }

    /// Returns a description of the workload.
    pub fn title(&self) -> String {
        if !self.traces.is_empty() {
            return self.traces.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        }
        let mut title = format!("{} records", grouped(self.records()));
        if let Ok(Some(distribution)) = self.distribution() {
            title += &format!(", {distribution}");
        }
        if let Some(dataset) = &self.dataset {
            title += &format!(", keys of {dataset}");
        }
        title
    }

    /// Returns the name of the preset, if one runs.
    pub fn preset(&self) -> Option<String> {
        let is_other =
            self.mix.is_some() || !self.traces.is_empty() || self.ratios.mix().is_ok_and(|mix| mix.is_some());
        self.presets[0].to_possible_value().map(|value| value.get_name().to_owned()).filter(|_| !is_other)
    }

    /// Returns the arguments in JSON.
    pub fn json(&self) -> Value {
        let mix = self.ratios.mix().ok().flatten().or_else(|| self.mix.clone());
        json!({
            "records": self.records(),
            "operations": self.operations(),
            "preset": self.preset(),
            "mix": mix.map(|mix| mix.to_string()),
            "distribution": self.distribution().ok().flatten().map(|distribution| distribution.to_string()),
            "keys": self.dataset.as_ref().map(Dataset::to_string),
            "scan_length": self.scan_length.map(|length| length.to_string()),
            "traces": self.traces,
        })
    }
}

/// Returns a copy of each of `all` for each value.
fn each<T: Clone>(all: &[Workload], values: &[T], set: impl Fn(&mut Workload, T)) -> Vec<Workload> {
    let with = |one: &Workload, value: &T| {
        let mut one = one.clone();
        set(&mut one, value.clone());
        one
    };
    all.iter()
        .flat_map(|one| values.iter().map(move |value| (one, value)))
        .map(|(one, value)| with(one, value))
        .collect()
}

/// Returns the maximum number of keys that phases add.
fn added(phases: &[Phase]) -> u64 {
    let adds = |phase: &&Phase| Op::all().any(|op| op.adds() && phase.mix.has(op));
    phases.iter().filter(adds).map(|phase| phase.operations).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        workload: Workload,
    }

    fn workload(line: &str) -> Workload {
        Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace()))
            .unwrap_or_else(|error| panic!("{error}"))
            .workload
    }

    #[test]
    fn workload_lists_give_every_combination() {
        let lists =
            workload("--design sstree,nbtree --records 1k,2k,3k --preset load,ycsb-a --value u64,bytes:8");
        let singles = lists.singles();
        assert_eq!(singles.len(), 2 * 3 * 2 * 2);
        let said: HashSet<String> =
            singles.iter().map(|one| format!("{} {} {}", one.design(), one.json(), one.value())).collect();
        assert_eq!(said.len(), singles.len());
        assert_eq!(workload("").singles().len(), 1);
    }

    #[test]
    fn workload_of_pibench_means_what_it_means_there() {
        let line = "-n 1000 -p 500 -k 8 -v 16 -r 0.7 -i 0.1 -u 0.1 -d 0.05 -s 0.05 --scan_size 30 --distribution SELFSIMILAR --skew 0.3";
        let pibench = workload(line);
        assert_eq!((pibench.key(), pibench.value()), (Shape::U64, Shape::Bytes { min: 16, max: 16 }));
        let phases = pibench.phases().unwrap();
        assert_eq!(
            phases[1].mix.to_string(),
            "get=700000,insert_new=100000,update=100000,remove=50000,scan=50000"
        );
        assert_eq!((phases[1].operations, phases[1].scan.of(0)), (500, 30));
        assert_eq!(phases[1].distribution, Distribution::SelfSimilar(0.3));
        let refused = |line| workload(line).phases().unwrap_err().line().to_owned();
        assert!(refused("--read_ratio 0.5").contains("add up to 0.5"));
        assert!(refused("--read_ratio 1 --mix get=1").contains("one of them"));
        assert!(refused("--distribution ZIPFIAN --skew 2").contains("--skew 2"));
        assert!(refused("--distribution uniform --skew 0.2").contains("no skew"));
    }

    #[test]
    fn workload_of_traces_loads_what_they_take_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["load.txt", "run.txt"].map(|name| folder.path().join(name));
        std::fs::write(&first, "INSERT 1\nINSERT 2\n").unwrap();
        std::fs::write(&second, "READ 1\nUPDATE 9\n").unwrap();
        let phases =
            workload(&format!("--trace {} --trace {}", first.display(), second.display())).phases().unwrap();
        let seen: Vec<_> =
            phases.iter().map(|phase| (phase.name.as_str(), phase.operations, phase.all_found)).collect();
        assert_eq!(seen, [("load", 1, true), ("load", 2, true), ("run", 2, true)]);
    }

    #[test]
    fn workload_of_a_key_set_has_keys_for_all_that_is_added() {
        let dense = workload("--keys dense --records 1000 --operations 100");
        let phases = dense.phases().unwrap();
        let Order::Listed(keys) = dense.order(&phases).unwrap() else { panic!("no list") };
        assert_eq!(keys.len(), 1200, "micro inserts twice as many as there are operations");
    }
}
