//! The checks of every image: it is opened, compared, operated on, and crashed again.

use std::sync::Arc;

use crate::explore::explorer::{Explorer, Worker};
use crate::explore::points::{Allowed, walk};
use crate::explore::system::System;
use crate::explore::visited::Standing;
use crate::medium::guard::guarded;
use crate::medium::sim::Sim;
use crate::model::cache::Cache;
use crate::model::image::{Kept, Mattered, Possible, Sample};
use crate::model::lines::difference;
use crate::model::lines::{LineMap, WordSet};
use crate::model::memory::Line;
use crate::model::trace::{Event, Mark};
use crate::report::describe::describe;
use bristlecone_random::mix;

/// Of crash points with more images than this, only those are counted that were visited.
const COUNTED_MAX: u64 = 1_000_000;

/// An image: the common base but for these lines.
pub(crate) type Image = LineMap<Line>;

/// Returns the image in which dirty lines keep what was chosen.
pub(crate) fn keep(possible: &Possible, choice: &[usize], mut image: Image) -> Image {
    image.extend(possible.lines.iter().zip(choice).map(|(kept, at)| (kept.line, kept.contents[*at])));
    image
}

/// An image and what it may hold.
#[derive(Clone, Copy)]
pub(crate) struct Case<'c> {
    pub(crate) base: &'c Arc<[Line]>,
    pub(crate) image: &'c Image,
    pub(crate) allowed: Allowed,
    /// How many crashes led to it.
    pub(crate) depth: u32,
}

/// What became of an image.
pub(crate) struct Recovered<S: System> {
    pub(crate) live: S::Live,
    pub(crate) state: S::State,
    /// Which of the run's states this is.
    pub(crate) index: usize,
    /// What recovery and reading did.
    pub(crate) trace: Vec<Event>,
    pub(crate) sim: Sim,
}

impl<S: System> Recovered<S> {
    /// Returns what recovery alone did.
    pub(crate) fn recovery(&self) -> &[Event] {
        let opened = self.trace.iter().position(|event| matches!(event, Event::Mark(Mark::Opened)));
        &self.trace[..opened.map_or(0, |at| at + 1)]
    }
}

impl<S: System> Explorer<'_, S> {
    /// Visits the images of one crash point: before event `at` of a trace.
    pub(crate) fn crash(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        (trace, at): (&[Event], usize),
        allowed: Allowed,
        depth: u32,
    ) -> Result<(), String> {
        let possible = cache.possible();
        let budget = &self.budget;
        let (exhaustive, sampled) =
            if depth == 1 { (budget.exhaustive, budget.sampled) } else { budget.nested };
        let base = cache.base();
        let hash = |line: u32, contents: &Line| difference(base, line, contents);
        let mut image = cache.durable().clone();
        possible.lines.iter().for_each(|kept| _ = image.remove(&kept.line));
        let settled = image.iter().map(|(line, contents)| hash(*line, contents));
        let settled = settled.fold(0, u64::wrapping_add);
        let of_line = |kept: &Kept| -> Vec<u64> {
            kept.contents.iter().map(|contents| hash(kept.line, contents)).collect()
        };
        let hashes: Vec<_> = possible.lines.iter().map(of_line).collect();
        worker.report.covered = worker.report.covered.saturating_add(possible.images);
        let affordable = |runs| runs < exhaustive && !self.images.is_full();
        let seed = mix(budget.seed) ^ at as u64;
        // What cannot be remembered is explored again and again: then only few.
        let sample = match self.images.is_full() {
            false => {
                let each = sampled as usize / possible.lines.len().max(1);
                let extremes = if depth == 1 { budget.extremes } else { each.clamp(8, 64) };
                Sample { extremes, lines: budget.lines, drawn: sampled }
            }
            true if depth == 1 => {
                Sample { extremes: budget.extremes.min(1), lines: budget.lines, drawn: sampled.min(16) }
            }
            true => Sample { extremes: 0, lines: 0, drawn: 1 },
        };
        // What such words hold was not read from the image that recovery began with.
        let overwritten = match depth {
            1 => WordSet::none(worker.scratch.memory()),
            _ => cache.overwritten(worker.scratch.memory()),
        };
        let mut visited = 0;
        let truncated = possible.visit(affordable, sample, seed, |choice| {
            if self.is_over() {
                return Ok(Mattered::nothing(worker.scratch.memory()));
            }
            visited += 1;
            let of_lines = hashes.iter().zip(choice).map(|(of_line, at)| of_line[*at]);
            let hash = of_lines.fold(settled, u64::wrapping_add);
            match self.images.enter(hash, allowed, depth, worker.number) {
                Standing::New => {}
                Standing::UnderWay => return Ok(Mattered::Unknown),
                Standing::Elsewhere => {
                    worker.reads.add_everything();
                    return Ok(Mattered::Unknown);
                }
                Standing::Done(reads) => {
                    worker.reads.add_others(&reads, &overwritten);
                    return Ok(Mattered::These(reads));
                }
            }
            image = keep(&possible, choice, std::mem::take(&mut image));
            let case = Case { base, image: &image, allowed, depth };
            let fresh = WordSet::none(worker.scratch.memory());
            let outer = std::mem::replace(&mut worker.reads, fresh);
            if let Err(what) = self.verify(worker, &case) {
                let (choice, what) = match worker.crashes[..] {
                    [] => self.shrink(worker, &case, &possible, choice.to_vec(), what),
                    _ => (choice.to_vec(), what),
                };
                worker.crashes.insert(0, describe(&self.run.ops, &possible, &choice, (trace, at), depth));
                return Err(what);
            }
            outer.add_others(&worker.reads, &overwritten);
            let reads = std::mem::replace(&mut worker.reads, outer);
            Ok(Mattered::These(self.images.finish(hash, allowed, reads)))
        });
        let all_visited = truncated == Ok(false) && !self.is_over();
        let all = all_visited && possible.images <= COUNTED_MAX;
        let images = [&mut worker.report.images, &mut worker.report.nested_images];
        *images[usize::from(depth > 1)] += if all { possible.images } else { visited };
        let truncated = truncated?;
        worker.report.decided(depth as usize, !truncated);
        worker.report.forgetful_points += u64::from(truncated && self.images.is_full());
        Ok(())
    }

    /// Looks for a smaller choice that fails as well, and what is said of it.
    fn shrink(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        possible: &Possible,
        mut choice: Vec<usize>,
        mut what: String,
    ) -> (Vec<usize>, String) {
        possible.shrink(&mut choice, |choice| {
            let image = keep(possible, choice, case.image.clone());
            let again = self.verify(worker, &Case { image: &image, ..*case });
            // A failure of a crash further on is another one.
            let same = std::mem::take(&mut worker.crashes).is_empty();
            match again {
                Err(again) if same => what = again,
                _ => return false,
            }
            true
        });
        (choice, what)
    }

    /// Runs all four checks of one image.
    pub(crate) fn verify(&self, worker: &mut Worker, case: &Case<'_>) -> Result<(), String> {
        worker.report.opened += 1;
        self.progress.opened_one();
        let Some(recovered) = self.recover(worker, case)? else {
            return Ok(());
        };
        let (index, recovery) = (recovered.index, recovered.recovery().to_vec());
        self.continue_after(worker, case, recovered)?;
        if case.depth < self.budget.depth { self.crash_again(worker, case, &recovery, index) } else { Ok(()) }
    }

    /// Checks 1 and 2: the image opens, is sound, and holds one of the states allowed. `None` if
    /// there is rightly nothing yet.
    pub(crate) fn recover(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
    ) -> Result<Option<Recovered<S>>, String> {
        let system = self.run.system;
        worker.scratch.load(case.image);
        let sim = Sim::explored(worker.scratch.memory(), self.mode, self.mutation);
        let recovered = guarded(|| {
            let Some(live) = system.open(&sim)? else {
                return Ok(None);
            };
            sim.mark(Mark::Opened);
            let state = system.observe(&live)?;
            Ok(Some((live, state)))
        });
        let trace = sim.take_trace();
        worker.reads.add_all(sim.reads());
        worker.scratch.note(&trace);
        worker.report.sites.note(&trace);
        worker.report.mutated |= sim.was_mutated();
        let Some((live, state)) = recovered? else {
            return self.accept(&None, case.allowed).map(|_| None);
        };
        let state = Some(state);
        match self.accept(&state, case.allowed) {
            Ok(index) => Ok(state.map(|state| Recovered { live, state, index, trace, sim })),
            Err(what) => {
                system.abandon(live);
                worker.scratch.note(&sim.take_trace());
                Err(what)
            }
        }
    }

    /// Returns which of the allowed states this is.
    fn accept(&self, state: &Option<S::State>, allowed: Allowed) -> Result<usize, String> {
        let Allowed { from, to } = allowed;
        let states = &self.run.states;
        (from..=to)
            .find(|index| states[*index] == *state)
            .ok_or_else(|| format!("recovered to {state:?}, allowed {:?}", &states[from..=to]))
    }

    /// Runs check 4: crashes inside the recovery of an image, and right after it.
    fn crash_again(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        trace: &[Event],
        index: usize,
    ) -> Result<(), String> {
        if trace.iter().all(|event| event.stored().is_none()) {
            return Ok(());
        }
        self.walk_recovery(case, trace, index, &mut |cache, at, allowed| {
            self.crash(worker, cache, (trace, at), allowed, case.depth + 1)
        })
    }

    /// Stops at each moment of a recovery that is worth a crash.
    pub(crate) fn walk_recovery(
        &self,
        case: &Case<'_>,
        trace: &[Event],
        index: usize,
        visit: &mut impl FnMut(&Cache, usize, Allowed) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut cache = Cache::over(self.mode, Arc::clone(case.base), case.image.clone());
        walk(self.mode, &mut cache, 0, trace, case.allowed, &mut |cache, at, allowed| {
            let seen = matches!(trace[at], Event::Mark(Mark::Opened));
            // What was seen after opening must stay.
            visit(cache, at, if seen { Allowed::only(index) } else { allowed })
        })
    }
}
