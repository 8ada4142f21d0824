//! Counts as JSON.

use bristlecone::TreeStats;
use bristlecone_device::{OUTSIDE, Tallies, Tally, Times, Traffic};
use bristlecone_pm::Part;
use serde_json::{Map, Value, json};

use super::run::{PhaseCount, Plan, Slice, kind};
use crate::bench::latency::Latency;
use crate::bench::workload::Op;

const PARTS: [(&str, Part); 3] = [("leaf", Part::Leaf), ("log", Part::Log), ("other", Part::Other)];

/// Totals of several phases.
pub struct Total {
    pub tallies: Tallies,
    operations: u64,
    times: Vec<Times>,
    /// Counts for each of the times.
    each: Vec<Tallies>,
}

impl Total {
    /// Adds phases up.
    pub fn of(phases: &[PhaseCount]) -> Self {
        let mut tallies = Tallies::default();
        let mut times: Vec<Times> = Vec::new();
        let mut each: Vec<Tallies> = Vec::new();
        for phase in phases {
            tallies += &phase.counted.tallies;
            each.resize_with(phase.tallies.len(), Tallies::default);
            each.iter_mut().zip(&phase.tallies).for_each(|(sum, more)| *sum += more);
            for (at, more) in phase.counted.times.iter().enumerate() {
                match times.get_mut(at) {
                    Some(sum) => *sum += more,
                    None => times.push(more.clone()),
                }
            }
        }
        let operations = tallies.sum().operations;
        Self { tallies, operations, times, each }
    }

    /// Returns millions of operations a second, by the number of threads.
    pub fn mops(&self) -> impl Iterator<Item = (usize, f64)> {
        let mops = |times: &Times| (times.threads, self.operations as f64 / times.seconds / 1e6);
        self.times.iter().map(mops)
    }

    /// Returns latencies of operations on the clock with the number of threads at this index.
    pub fn latencies(&self, at: usize) -> impl Iterator<Item = (Op, Latency)> {
        let of = move |op| self.times.get(at)?.latencies.get(&kind(op)).map(|times| (op, times.into()));
        Op::all().filter_map(of)
    }

    /// Returns the operations that occurred.
    pub fn kinds(&self) -> impl Iterator<Item = (Op, Tally)> {
        Op::all().map(|op| (op, self.tallies[kind(op)])).filter(|(_, tally)| tally.operations > 0)
    }

    /// Returns bytes written per byte of the user: in lines to the device, and by the media.
    pub fn amplifications(&self, part: Option<Part>) -> Option<(f64, f64)> {
        amplifications(&self.tallies, part)
    }

    fn json(&self) -> Map<String, Value> {
        let per_operation: Map<String, Value> =
            self.kinds().map(|(op, tally)| (op.to_string(), per_operation(&tally))).collect();
        let amplification = |part| {
            let (cli, xbi) = self.amplifications(part).unzip();
            [("cli_amplification".to_owned(), json!(cli)), ("xbi_amplification".to_owned(), json!(xbi))]
        };
        let written: Map<String, Value> = PARTS
            .map(|(name, part)| {
                (name.to_owned(), Value::Object(amplification(Some(part)).into_iter().collect()))
            })
            .into_iter()
            .collect();
        let throughput = |(at, (threads, mops))| {
            let latencies: Map<String, Value> =
                self.latencies(at).map(|(op, latency)| (op.to_string(), json!(latency))).collect();
            let (cli, xbi) = self.each.get(at).and_then(|tallies| amplifications(tallies, None)).unzip();
            json!({
                "threads": threads,
                "mops": mops,
                "cli_amplification": cli,
                "xbi_amplification": xbi,
                "latency_ns": latencies,
                "writing": self.times.get(at).map(|times| &times.writing),
                "writing_mean": self.times.get(at).map(writing_mean),
            })
        };
        let throughput: Vec<Value> = self.mops().enumerate().map(throughput).collect();
        let mut json = Map::new();
        json.insert("per_operation".to_owned(), Value::Object(per_operation));
        json.extend(amplification(None));
        json.insert("written".to_owned(), Value::Object(written));
        json.insert("background".to_owned(), background(&self.tallies));
        json.insert("throughput".to_owned(), Value::Array(throughput));
        json
    }
}

/// Returns the mean number of threads that wrote to the device at the same time.
fn writing_mean(times: &Times) -> f64 {
    times.writing.iter().enumerate().map(|(threads, share)| threads as f64 * share).sum()
}

/// Returns bytes written per byte of the user: in lines to the device, and by the media.
fn amplifications(tallies: &Tallies, part: Option<Part>) -> Option<(f64, f64)> {
    let sum = tallies.sum();
    let traffic = part.map_or(sum.total(), |part| sum.part(part));
    let times = |bytes: u64| bytes as f64 / sum.user_bytes as f64;
    (sum.user_bytes > 0).then(|| (times(traffic.device_bytes_written), times(traffic.media_bytes_written)))
}

/// Returns a traffic's figures by name.
fn figures(traffic: &Traffic) -> [(&'static str, u64); 6] {
    [
        ("flushes", traffic.flushes),
        ("lines_written", traffic.lines_written),
        ("lines_read", traffic.lines_read),
        ("device_bytes_written", traffic.device_bytes_written),
        ("media_bytes_written", traffic.media_bytes_written),
        ("media_bytes_read", traffic.media_bytes_read),
    ]
}

fn per_operation(tally: &Tally) -> Value {
    let each = |number: u64| json!(number as f64 / tally.operations as f64);
    let averages = |traffic: Traffic| -> Map<String, Value> {
        figures(&traffic).into_iter().map(|(name, number)| (name.to_owned(), each(number))).collect()
    };
    let mut json = Map::new();
    json.insert("operations".to_owned(), json!(tally.operations));
    json.insert("fences".to_owned(), each(tally.fences));
    json.insert("reading_nothing".to_owned(), each(tally.reading_nothing));
    json.extend(averages(tally.total()));
    for (name, part) in PARTS {
        json.insert(name.to_owned(), Value::Object(averages(tally.part(part))));
    }
    Value::Object(json)
}

/// Returns totals, because there are no operations to divide by.
fn background(tallies: &Tallies) -> Value {
    let tally = tallies[OUTSIDE];
    let mut json: Map<String, Value> = figures(&tally.total())
        .into_iter()
        .filter(|(name, _)| !matches!(*name, "lines_written" | "lines_read"))
        .map(|(name, number)| (name.to_owned(), json!(number)))
        .collect();
    json.insert("fences".to_owned(), json!(tally.fences));
    Value::Object(json)
}

fn space(stats: &TreeStats) -> Value {
    let per_key = |bytes: u64| (stats.items > 0).then(|| bytes as f64 / stats.items as f64);
    json!({
        "keys": stats.items,
        "pm_bytes": stats.pm_bytes,
        "dram_bytes": stats.dram_bytes,
        "pm_bytes_per_key": per_key(stats.pm_bytes),
        "dram_bytes_per_key": per_key(stats.dram_bytes),
        "log_bytes": stats.log_bytes,
        "log_entries_needed": stats.log_entries,
    })
}

/// Returns the relevant phases: those after the load, if there are any.
fn measured(phases: &[PhaseCount]) -> &[PhaseCount] {
    match phases {
        [_, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

/// Returns the whole run as one JSON value.
pub fn json(plan: &Plan, phases: &[PhaseCount], workload: &Value) -> Value {
    let (profile, processor) = (&plan.profile, &plan.processor);
    let mut json = json!({
        "design": plan.design.to_string(),
        "baseline": plan.design.is_baseline(),
        "options": plan.options.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>(),
        "profile": profile.name,
        "domain": plan.domain.to_string(),
        "key": plan.key.to_string(),
        "value": plan.value.to_string(),
        "seed": plan.seed,
        "writers": plan.writers,
    });
    let Some(object) = json.as_object_mut() else { return json };
    object.extend(workload.as_object().cloned().unwrap_or_default());
    object.extend(Total::of(measured(phases)).json());
    object.insert("space".to_owned(), phases.first().map_or(Value::Null, |load| space(&load.space)));
    object.extend(sliced(phases.last().map_or(&[], |last| &last.slices)));
    let each = plan.phases.iter().zip(phases).map(|(phase, count)| {
        let mut json = Map::new();
        json.insert("name".to_owned(), json!(phase.name));
        json.insert("operations".to_owned(), json!(phase.operations));
        json.insert("found".to_owned(), json!(count.found));
        json.extend(Total::of(std::slice::from_ref(count)).json());
        json.insert("space".to_owned(), space(&count.space));
        Value::Object(json)
    });
    object.insert("phases".to_owned(), each.collect());
    object.insert(
        "parameters".to_owned(),
        json!({
            "media_line_bytes": profile.media_line_bytes,
            "modules": profile.modules,
            "interleave_bytes": profile.interleave_bytes,
            "write_buffer_lines": profile.write_buffer_lines,
            "read_buffer_lines": profile.read_buffer_lines,
            "read_ns": profile.read_ns,
            "buffered_read_ns": profile.buffered_read_ns,
            "flush_ns": profile.flush_ns,
            "fence_ns": profile.fence_ns,
            "media_read_ns": profile.media_read_ns,
            "media_write_ns": profile.media_write_ns,
            "queue_ns": profile.queue_ns,
            "reflush_ns": profile.reflush_ns,
            "clwb_evicts": profile.clwb_evicts,
            "random_eviction": profile.random_eviction,
            "line_ns": profile.line_ns,
            "writers_best": profile.writers_best,
            "write_slowdown": profile.write_slowdown,
            "shared_queue": profile.shared_queue,
            "cache_bytes": processor.cache_bytes,
            "cache_ways": processor.ways,
            "cache_hit_ns": processor.hit_ns,
            "operation_ns": processor.operation_ns,
        }),
    );
    json
}

/// Returns the figures of slices and their extremes: the maximum length of the log; and on the clock of the last
/// number of threads by how many percent the slowest slice is slower than the median, and the ratio of the
/// slowest operation in the last slice to that in the first.
fn sliced(slices: &[Slice]) -> Map<String, Value> {
    let mut json = Map::new();
    let mut all = Vec::new();
    for Slice { counted, space } in slices {
        let operations = counted.tallies.sum().operations;
        let last = counted.times.last();
        let slowest = last.and_then(|times| times.latencies.values().map(|latencies| latencies.max()).max());
        all.push(json!({
            "operations": operations,
            "mops": last.map(|times| operations as f64 / times.seconds / 1e6),
            "slowest_ns": slowest,
            "media_bytes_written": counted.tallies.sum().total().media_bytes_written,
            "keys": space.items,
            "pm_bytes": space.pm_bytes,
            "log_bytes": space.log_bytes,
            "log_entries_needed": space.log_entries,
        }));
    }
    let mut mops: Vec<f64> = all.iter().filter_map(|slice| slice["mops"].as_f64()).collect();
    mops.sort_by(f64::total_cmp);
    if let (Some(least), Some(median)) = (mops.first(), mops.get(mops.len() / 2)) {
        json.insert("slowest_slice_percent".to_owned(), json!((1.0 - least / median) * 100.0));
        json.insert(
            "log_bytes_peak".to_owned(),
            json!(slices.iter().map(|slice| slice.space.log_bytes).max()),
        );
        let slowest = |slice: Option<&Value>| slice.and_then(|slice| slice["slowest_ns"].as_f64());
        let growth = slowest(all.last()).zip(slowest(all.first())).map(|(last, first)| last / first);
        json.insert("slowest_growth".to_owned(), json!(growth));
        json.insert("slices".to_owned(), Value::Array(all));
    }
    json
}
