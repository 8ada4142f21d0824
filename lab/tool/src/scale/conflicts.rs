//! Conflicting accesses of the phases of a run, by real threads or by simulated ones.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bristlecone::lab::AnyMedium;
use bristlecone_baselines::part_of;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_device::Layout;
use bristlecone_device::cores::{Conflicts, Cores, Shared};
use bristlecone_explore::targets::medium_pool;
use bristlecone_pm::{CHUNK_BYTES, Geometry, Region};

use super::run::{Plan, draw, execute};
use crate::bench::subject::TreeStore;

/// Who executes the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Threads,
    SimulatedThreads,
}

/// The name of each phase, and its conflicts an operation.
pub type Counted = Vec<(String, f64)>;

/// Counts the conflicts of each phase. Keys and values are words.
pub fn count(plan: &Plan, threads: usize, by: By) -> Outcome<Counted> {
    let (done, conflicts) = (AtomicU64::new(0), Arc::new(Conflicts::default()));
    let (_, streams) = draw(plan, threads);
    let chunks_max = plan.max_bytes.div_ceil(CHUNK_BYTES);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes())?;
    let pool = (&region, Layout { geometry, part_of });
    let mut cores = match by {
        By::Threads => None,
        By::SimulatedThreads => {
            Some(Cores::new(&plan.machine, threads, pool, plan.domain, false).map_err(Failure::usage)?)
        }
    };
    let medium = cores.as_ref().map_or_else(|| Shared::new(pool, plan.domain), Cores::medium);
    let pool = medium_pool(medium, region, geometry, plan.domain)?;
    let tree = Box::new(TreeStore::<u64, u64>::within::<AnyMedium>(pool, plan.design, &plan.options)?);
    cores.iter().for_each(|cores| cores.observe(Arc::clone(&conflicts)));
    let mut counted = Vec::new();
    for (phase, streams) in plan.phases.iter().zip(&streams) {
        let of_thread = |thread: usize| (&streams[thread], &*tree);
        match &mut cores {
            Some(cores) => {
                let ran = cores.run(|simulated, thread| {
                    let run = |op, operation: &mut dyn FnMut() -> _| simulated.operation(op, operation);
                    execute(plan, phase, of_thread(thread), &done, run)
                });
                ran.into_iter().sum::<Outcome<u64>>()?;
            }
            None => {
                let body = |thread| {
                    let run = |_, operation: &mut dyn FnMut() -> _| operation();
                    conflicts.on_thread(thread, || execute(plan, phase, of_thread(thread), &done, run))
                };
                let body = &body;
                std::thread::scope(|scope| {
                    let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || body(thread))).collect();
                    all.into_iter().map(|one| one.join().expect("a thread")).sum::<Outcome<u64>>()
                })?;
            }
        }
        let (_, conflicts) = conflicts.take();
        counted.push((phase.name.clone(), conflicts as f64 / phase.operations as f64));
    }
    drop(tree);
    Ok(counted)
}
