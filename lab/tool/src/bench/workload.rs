//! Workloads: operations in proportions, over a distribution of keys, in phases.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::input::trace::Trace;
pub use super::op::{Mix, Op};
pub use super::scan_length::ScanLength;

/// Distribution of the keys of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys equally likely.
    Uniform,
    /// Consecutive keys, in key order.
    Sequential,
    /// Zipf's law as in YCSB, hot keys scattered; theta in (0, 1).
    Zipf(f64),
    /// Of any set of keys, the fraction `skew` gets the fraction `1 - skew` of operations; in (0, 0.5).
    SelfSimilar(f64),
    /// The fraction `keys` of the keys gets the fraction `ops` of the operations.
    Hotspot { keys: f64, ops: f64 },
    /// Zipf's law over the keys by age: the newest is the hottest (YCSB D).
    Latest(f64),
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str, min: f64, max: f64| match text.parse::<f64>() {
            Ok(number) if number > min && number < max => Ok(number),
            _ => Err(format!("{text:?} must be between {min} and {max}")),
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["uniform" | "UNIFORM"] => Ok(Self::Uniform),
            // PiBench's names, with its default for the skew.
            ["selfsimilar" | "SELFSIMILAR"] => Ok(Self::SelfSimilar(0.2)),
            ["zipfian" | "ZIPFIAN"] => Ok(Self::Zipf(0.2)),
            ["sequential"] => Ok(Self::Sequential),
            ["zipf", theta] => Ok(Self::Zipf(number(theta, 0.0, 1.0)?)),
            ["selfsimilar", skew] => Ok(Self::SelfSimilar(number(skew, 0.0, 0.5)?)),
            ["latest", theta] => Ok(Self::Latest(number(theta, 0.0, 1.0)?)),
            ["hotspot", keys, ops] => {
                Ok(Self::Hotspot { keys: number(keys, 0.0, 1.0)?, ops: number(ops, 0.0, 1.0)? })
            }
            _ => Err(format!(
                "{text:?} is none of uniform, sequential, zipf:THETA, selfsimilar:SKEW, hotspot:KEYS:OPS, latest:THETA"
            )),
        }
    }
}

impl Distribution {
    /// Returns the same kind with another skew.
    pub fn with_skew(self, skew: f64) -> Result<Self, String> {
        match self {
            Self::Zipf(_) => format!("zipf:{skew}").parse(),
            Self::SelfSimilar(_) => format!("selfsimilar:{skew}").parse(),
            other => Err(format!("{other} has no skew")),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Sequential => f.write_str("sequential"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::SelfSimilar(skew) => write!(f, "selfsimilar:{skew}"),
            Self::Hotspot { keys, ops } => write!(f, "hotspot:{keys}:{ops}"),
            Self::Latest(theta) => write!(f, "latest:{theta}"),
        }
    }
}

/// A unit of measurement.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: String,
    pub mix: Mix,
    pub distribution: Distribution,
    pub operations: u64,
    pub scan: ScanLength,
    /// Each key exactly once, up to the number of operations, instead of by distribution.
    pub each_once: bool,
    /// Whether every operation must find its key.
    pub all_found: bool,
    /// The operations, if they are not generated.
    pub trace: Option<Arc<Trace>>,
}

impl Phase {
    /// Returns the phase of a trace.
    pub fn of_trace(name: &str, trace: Arc<Trace>) -> Self {
        let of = |op: &Op| trace.ops.iter().filter(|other| *other == op).count();
        let parts: Vec<_> = Op::all().map(|op| (op, of(&op) as u32)).collect();
        Self {
            name: name.to_owned(),
            mix: Mix::of(&parts),
            distribution: Distribution::Sequential,
            operations: trace.ids.len() as u64,
            scan: ScanLength::of_length(SCAN_LENGTH),
            each_once: false,
            all_found: trace.all_found(),
            trace: Some(trace),
        }
    }
}

/// Predefined sequences of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// load, get, update, insert, scan, zipf:0.99 half get half upsert, get_many, upsert_many, insert_many, remove
    Micro,
    /// load only
    Load,
    /// half get, half update, zipf:0.99
    YcsbA,
    /// 95 % get, 5 % update, zipf:0.99
    YcsbB,
    /// get only, zipf:0.99
    YcsbC,
    /// 95 % get of recent keys, 5 % insert
    YcsbD,
    /// 95 % scan of 1 to 100, 5 % insert, zipf:0.99
    YcsbE,
    /// half get, half read-modify-write, zipf:0.99
    YcsbF,
    /// transfers among --records accounts by --threads, and sums of snapshots meanwhile; then a process that makes
    /// transfers is killed --kills times, and its store is summed (bench only)
    Bank,
    /// --operations new words one by one, and as many in batches of --group (bench only)
    Batch,
    /// updates before and after the first batch and concurrent with a snapshot, lookups and scans of a tree and of a
    /// snapshot that differs in one key of a hundred; on one thread (bench only)
    Snapshot,
}

/// Default theta of Zipf's law.
const THETA: f64 = 0.99;
const SCAN_LENGTH: u32 = 100;

/// Returns the phases of a run: the load, then those of the preset or the mix.
pub fn phases(
    preset: Preset,
    mix: Option<&Mix>,
    distribution: Option<Distribution>,
    scan: Option<ScanLength>,
    (records, operations): (u64, u64),
) -> Vec<Phase> {
    let asked = distribution.unwrap_or(Distribution::Uniform);
    let phase = |name: &str, mix: Mix, distribution: Distribution, operations: u64| Phase {
        name: name.to_owned(),
        all_found: !mix.has(Op::Remove) && !mix.has(Op::RemoveMany),
        mix,
        distribution,
        operations,
        scan: scan.unwrap_or(ScanLength::of_length(SCAN_LENGTH)),
        each_once: false,
        trace: None,
    };
    let only = |op: Op| phase(&op.to_string(), Mix::only(op), asked, operations);
    let loaded_in_order = if asked == Distribution::Sequential { asked } else { Distribution::Uniform };
    let load = Phase { each_once: true, ..phase("load", Mix::only(Op::Insert), loaded_in_order, records) };
    let mut phases = vec![load];
    if let Some(mix) = mix {
        phases.push(phase("mix", mix.clone(), asked, operations));
        return phases;
    }
    let zipf = distribution.unwrap_or(Distribution::Zipf(THETA));
    let ycsb = |mix: &[(Op, u32)], distribution| phase("run", Mix::of(mix), distribution, operations);
    match preset {
        Preset::Load => {}
        Preset::Micro => {
            let half = Mix::of(&[(Op::Get, 1), (Op::Upsert, 1)]);
            phases.extend([only(Op::Get), only(Op::Update), only(Op::Insert)]);
            // A scan costs a hundred times as much as a get.
            phases.push(phase("scan", Mix::only(Op::Scan), asked, (operations / 10).max(1)));
            phases.push(phase("zipf", half, Distribution::Zipf(THETA), operations));
            phases.extend([Op::GetMany, Op::UpsertMany, Op::InsertMany].map(only));
            phases.push(Phase { each_once: true, all_found: true, ..only(Op::Remove) });
        }
        Preset::YcsbA => phases.push(ycsb(&[(Op::Get, 50), (Op::Update, 50)], zipf)),
        Preset::YcsbB => phases.push(ycsb(&[(Op::Get, 95), (Op::Update, 5)], zipf)),
        Preset::YcsbC => phases.push(ycsb(&[(Op::Get, 1)], zipf)),
        Preset::YcsbD => {
            let latest = distribution.unwrap_or(Distribution::Latest(THETA));
            phases.push(ycsb(&[(Op::Get, 95), (Op::Insert, 5)], latest));
        }
        Preset::YcsbE => {
            let run = ycsb(&[(Op::Scan, 95), (Op::Insert, 5)], zipf);
            phases.push(Phase { scan: scan.unwrap_or(ScanLength::up_to(SCAN_LENGTH)), ..run });
        }
        Preset::Bank | Preset::Batch | Preset::Snapshot => {
            phases.push(phase("together", Mix::only(Op::Upsert), asked, operations))
        }
        Preset::YcsbF => phases.push(ycsb(&[(Op::Get, 50), (Op::ReadModifyWrite, 50)], zipf)),
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_printed_parses_to_the_same() {
        for text in ["uniform", "sequential", "zipf:0.99", "selfsimilar:0.2", "hotspot:0.2:0.8", "latest:0.5"]
        {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "zipf", "zipf:1", "zipf:0", "selfsimilar:0.5", "hotspot:0.2", "hotspot:2:1", "zipf:nan"]
        {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }
}
