//! Phases on the model of a device.

use bristlecone::lab::AnyMedium;
use bristlecone::{Domain, TreeStats};
use bristlecone_baselines::{AnyDesign, part_of};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_device::{Counted, Device, Layout, Processor, Profile};
use bristlecone_lab::targets::device_pool;
use bristlecone_pm::{CHUNK_BYTES, Geometry, Region, assume_thread_index};

use crate::bench::data::{BenchKey, BenchValue, Buffer, Shape};
use crate::bench::stream::{self, Keys, Order};
use crate::bench::subject::{TreeStore, operate};
use crate::bench::workload::{Op, Phase};

/// Everything that makes a run what it is.
#[derive(Debug)]
pub struct Plan {
    pub design: AnyDesign,
    pub options: Vec<(String, u64)>,
    pub profile: Profile,
    pub processor: Processor,
    pub domain: Domain,
    pub threads: Vec<usize>,
    /// Threads that operations are dealt to in turn.
    pub writers: usize,
    pub phases: Vec<Phase>,
    pub max_bytes: u64,
    pub seed: u64,
    pub order: Order,
    pub key: Shape,
    pub value: Shape,
}

/// What one phase came to.
#[derive(Debug)]
pub struct PhaseCount {
    pub found: u64,
    pub counted: Counted,
    /// What the tree occupies at its end.
    pub space: TreeStats,
}

/// Returns the kind that the device knows an operation by.
pub fn kind(op: Op) -> u8 {
    op as u8 + 1
}

/// Operations between two looks at the clock and at Ctrl-C.
const STRIDE: usize = 1 << 12;

/// Runs the plan.
pub fn run(plan: &Plan, output: &Output) -> Outcome<Vec<PhaseCount>> {
    match (plan.key, plan.value) {
        (Shape::U64, Shape::U64) => phases::<u64, u64>(plan, output),
        (Shape::U64, Shape::Bytes { .. }) => phases::<u64, &'static [u8]>(plan, output),
        (Shape::Bytes { .. }, Shape::U64) => phases::<&'static [u8], u64>(plan, output),
        (Shape::Bytes { .. }, Shape::Bytes { .. }) => phases::<&'static [u8], &'static [u8]>(plan, output),
    }
}

fn phases<K: BenchKey, V: BenchValue>(plan: &Plan, output: &Output) -> Outcome<Vec<PhaseCount>> {
    let chunks_max = plan.max_bytes.div_ceil(CHUNK_BYTES);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes())?;
    let device = Device::new(
        &region,
        Layout { geometry, part_of },
        plan.domain,
        plan.profile,
        plan.processor,
        &plan.threads,
    );
    let pool = device_pool(&device, region, geometry, plan.domain)?;
    let tree = TreeStore::<K, V>::within::<AnyMedium>(pool, plan.design, &plan.options)?;
    // Creating is not part of any phase.
    device.take();
    let bar = output.progress("counting", Some(plan.phases.iter().map(|phase| phase.operations).sum()));
    let mut keys = Keys { seed: plan.seed, order: plan.order, count: 0 };
    let mut counts = Vec::new();
    for (number, phase) in plan.phases.iter().enumerate() {
        bar.set_message(phase.name.clone());
        let (streams, added) = stream::draw(phase, &keys, 1, number as u64);
        let (mut key, mut value) = (plan.key.buffer(), plan.value.buffer());
        let mut found = 0;
        for (at, id) in streams.iter().flat_map(|stream| &stream.ids).enumerate() {
            if at % STRIDE == 0 {
                interrupt::check("the count is not finished")?;
                bar.inc(STRIDE as u64);
            }
            assume_thread_index(Some(at % plan.writers));
            let op = streams[0].ops.get(at).copied().or(phase.mix.single()).unwrap_or(Op::Get);
            found += u64::from(device.operation(kind(op), || {
                let ids = (*id, at as u64);
                let done = operate(&tree, op, ids, phase.scan, (&mut key, &mut value));
                let bytes = done.as_ref().map_or(0, |found| user_bytes(op, ids, *found, (&key, &value)));
                (done, bytes)
            })?);
        }
        if phase.all_found && found < phase.operations {
            let (name, all) = (&phase.name, phase.operations);
            let what = format!("{name}: only {found} of {all} operations found their key");
            return Err(Failure::new(Exit::Failed, what));
        }
        counts.push(PhaseCount { found, counted: device.take(), space: tree.stats() });
        keys.count += added;
    }
    assume_thread_index(None);
    bar.finish_and_clear();
    Ok(counts)
}

/// Returns the bytes that the user wrote: key and value, or the key that goes.
fn user_bytes(op: Op, (id, written): (u64, u64), found: bool, (key, value): (&Buffer, &Buffer)) -> u64 {
    match op {
        Op::Get | Op::Scan | Op::GetMany => 0,
        Op::Insert | Op::InsertMany => key.bytes_of(id) + value.bytes_of(id),
        Op::Upsert | Op::UpsertMany => key.bytes_of(id) + value.bytes_of(written),
        _ if !found => 0,
        Op::InsertNew => key.bytes_of(id) + value.bytes_of(id),
        Op::Update | Op::ReadModifyWrite => key.bytes_of(id) + value.bytes_of(written),
        Op::Remove | Op::RemoveMany => key.bytes_of(id),
    }
}
