//! Presets with atomic changes of several keys.
//!
//! - [`bank`]: transfers concurrent with sums of snapshots, and kills.
//! - [`batch`]: batches against single writes.
//! - [`snapshot`]: the overhead of batches and snapshots for other operations.
//! - [`ledger`]: the store interface of the first two; [`kept`]: the stores that implement it.

pub mod bank;
pub mod batch;
pub mod kept;
pub mod ledger;
pub mod snapshot;

use std::path::Path;

use bristlecone::{Domain, Pool};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt::remove_pool;
use bristlecone_cli::output::{Output, grouped};
use serde_json::{Value, json};

use self::kept::Kept;
use super::comparison::Plan;
use super::report::machine;

/// One of these presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Transfers, sums and kills.
    Bank,
    /// Batches.
    Batch,
    /// Overhead of batches and snapshots.
    Snapshot,
}

impl Kind {
    /// Returns the preset's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bank => "bank",
            Self::Batch => "batch",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Runs a preset on all stores alternately, and returns the results of each.
///
/// # Errors
///
/// For stores that do not support it, and those of stores.
pub fn measure(kind: Kind, plan: &Plan, kills: u32, path: &Path, output: &Output) -> Outcome<Vec<Value>> {
    let [records, operations] = [0, 1].map(|at| plan.phases[at].operations);
    if kind == Kind::Bank && records < 2 {
        return Err(Failure::usage("a transfer takes two accounts: --records must be 2 or more"));
    }
    let stores = Kept::all(kind, plan, domain(plan, path)?, path)?;
    let Plan { threads, seed, .. } = *plan;
    let bank = bank::Sizes { accounts: records, transfers: operations, threads, kills, seed };
    let batch = batch::Sizes { records, words: operations, group: plan.group as u64, threads, seed };
    let snapshot = snapshot::Sizes { records, operations, seed };
    let bar = output.progress("measuring", Some((plan.rounds * stores.len()) as u64));
    let (mut banks, mut batches) = (vec![Vec::new(); stores.len()], vec![Vec::new(); stores.len()]);
    let mut snapshots = vec![Vec::new(); stores.len()];
    for round in 0..plan.rounds {
        for at in plan.order_of(round) {
            bar.set_message(stores[at].name());
            match kind {
                Kind::Bank => banks[at].push(bank.round(&stores[at], round as u64)?),
                Kind::Batch => batches[at].push(batch.round(&stores[at])?),
                Kind::Snapshot => snapshots[at].push(snapshot.round(&stores[at], round as u64)?),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(stores
        .iter()
        .enumerate()
        .map(|(at, store)| match kind {
            Kind::Bank => bank::json(store, &banks[at]),
            Kind::Batch => batch::json(store, &batches[at]),
            Kind::Snapshot => snapshot::json(store, &snapshots[at]),
        })
        .collect())
}

/// Returns the requested domain, or that of a pool at this path.
fn domain(plan: &Plan, path: &Path) -> Outcome<Domain> {
    if let Some(domain) = plan.setup.domain {
        return Ok(domain);
    }
    let path = path.with_extension("probe");
    let found = Pool::options().max_bytes(plan.setup.max_bytes).create_new(true).open(&path);
    let domain = found.map(|pool| pool.info().domain);
    remove_pool(&path);
    Ok(domain?)
}

/// Returns the whole run as one JSON value: the results of the design, and in `against` those of
/// the others.
pub fn json(kind: Kind, plan: &Plan, stores: &[Value]) -> Value {
    let [records, operations] = [0, 1].map(|at| plan.phases[at].operations);
    let mut value = json!({
        "preset": kind.name(),
        "design": plan.setup.design.to_string(),
        "options": plan.setup.options,
        "records": records,
        "operations": operations,
        "threads": plan.threads,
        "group": plan.group,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "machine": machine(),
        "order": (0..plan.rounds).map(|round| plan.order_of(round).map(|at| stores[at]["name"].clone()).collect()).collect::<Vec<Vec<Value>>>(),
    });
    if let (Some(value), Some(ours)) = (value.as_object_mut(), stores[0].as_object()) {
        value.extend(ours.clone());
        if stores.len() > 1 {
            value.insert("against".to_owned(), Value::Array(stores[1..].to_vec()));
        }
    }
    value
}

/// Prints the results of stores.
///
/// # Errors
///
/// Those of the output.
pub fn show(kind: Kind, stores: &[Value], output: &mut Output) -> Outcome {
    let number = |store: &Value, name: &str| grouped(store[name].as_f64().unwrap_or(0.0).round() as u64);
    for store in stores {
        let name = store["name"].as_str().unwrap_or_default();
        match kind {
            Kind::Bank => {
                output.line(format!(
                    "{name}: {} transfers a second, {} conflicts, {} sums, {}; {} kills",
                    number(store, "transfers_per_second"),
                    number(store, "conflicts"),
                    number(store, "sums_checked"),
                    if store["total_is_constant"] == true {
                        "all of them right"
                    } else {
                        "not all of them right"
                    },
                    number(store, "kills"),
                ))?;
            }
            Kind::Batch => {
                output.line(format!(
                    "{name}: {} words a second one by one, {} in batches, {:.2} times as many",
                    number(store, "inserts_per_second"),
                    number(store, "batched_per_second"),
                    store["speedup"].as_f64().unwrap_or(0.0),
                ))?;
                for (name, what) in [
                    ("many_per_second", "words a second in calls of many keys"),
                    ("bare_syncs_per_second", "bare syncs a second"),
                ] {
                    if store[name].is_number() {
                        output.line(format!("  {} {what}", number(store, name)))?;
                    }
                }
            }
            Kind::Snapshot => {
                let ratio = |name: &str| format!("{:.2}", store[name].as_f64().unwrap_or(0.0));
                output.line(format!(
                    "{name}: an update takes {} ns; {} times as long after the first batch, {} times beside a snapshot",
                    number(store, "update_ns"),
                    ratio("update_after_batch"),
                    ratio("update_beside_snapshot"),
                ))?;
                output.line(format!(
                    "  a lookup takes {} ns, {} times as long on a snapshot; a scan {} ns a key, {} times",
                    number(store, "get_ns"),
                    ratio("snapshot_get"),
                    number(store, "scan_ns"),
                    ratio("snapshot_scan"),
                ))?;
            }
        }
        output.line(format!("  {}", store["durability"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}

/// Fails if a store lost or changed data.
///
/// # Errors
///
/// A store lost or changed data.
pub fn all_there(stores: &[Value]) -> Outcome {
    for store in stores {
        if store["total_is_constant"] == false || store["lost"].as_u64().is_some_and(|lost| lost > 0) {
            let what = format!("{}: what was written is not what is there", store["name"]);
            return Err(Failure::new(Exit::Failed, what));
        }
    }
    Ok(())
}
