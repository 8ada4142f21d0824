//! The checks of every image: it is opened, compared, operated on, and crashed again.

use std::sync::Arc;

use crate::explore::explorer::{Explorer, Worker};
use crate::explore::points::{Allowed, walk};
use crate::explore::system::System;
use crate::medium::guard::guarded;
use crate::medium::sim::Sim;
use crate::model::cache::Cache;
use crate::model::image::Possible;
use crate::model::lines::LineMap;
use crate::model::memory::Line;
use crate::model::trace::{Event, Mark};

/// An image: the common base, replaced in these lines.
pub(crate) type Image = LineMap<Line>;

/// Returns the image in which dirty lines keep the chosen contents.
pub(crate) fn keep(possible: &Possible, choice: &[usize], mut image: Image) -> Image {
    image.extend(possible.lines.iter().zip(choice).map(|(kept, at)| (kept.line, kept.contents[*at])));
    image
}

/// An image and its allowed states.
#[derive(Clone, Copy)]
pub(crate) struct Case<'c> {
    pub(crate) base: &'c Arc<[Line]>,
    pub(crate) image: &'c Image,
    pub(crate) allowed: Allowed,
    /// Number of crashes that led to it.
    pub(crate) depth: u32,
}

/// Result of recovering an image.
pub(crate) struct Recovered<S: System> {
    pub(crate) live: S::Live,
    pub(crate) state: S::State,
    /// Index of the run's state; `None` if it lies between two of them.
    pub(crate) index: Option<usize>,
    /// Events of recovery and reading.
    pub(crate) trace: Vec<Event>,
    pub(crate) sim: Sim,
}

impl<S: System> Recovered<S> {
    /// Returns the events of recovery alone.
    pub(crate) fn recovery(&self) -> &[Event] {
        let opened = self.trace.iter().position(|event| matches!(event, Event::Mark(Mark::Opened)));
        &self.trace[..opened.map_or(0, |at| at + 1)]
    }
}

impl<S: System> Explorer<'_, S> {
    /// Runs all four checks of one image.
    pub(crate) fn verify(&self, worker: &mut Worker, case: &Case<'_>) -> Result<(), String> {
        worker.report.opened += 1;
        self.progress.opened_one();
        let Some(recovered) = self.recover(worker, case)? else {
            return Ok(());
        };
        let (index, recovery) = (recovered.index, recovered.recovery().to_vec());
        self.continue_after(worker, case, recovered)?;
        match index {
            Some(index) if case.depth < self.budget.depth => self.crash_again(worker, case, &recovery, index),
            _ => Ok(()),
        }
    }

    /// Checks 1 and 2: the image opens, is consistent, and holds one of the allowed states. `None`
    /// if correctly nothing exists yet.
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

    /// Returns the index of the allowed state.
    fn accept(&self, state: &Option<S::State>, allowed: Allowed) -> Result<Option<usize>, String> {
        let Allowed { from, to } = allowed;
        let states = &self.run.states;
        let index = (from..=to).find(|index| states[*index] == *state);
        let is_between = |index: usize| match (&states[index], &states[index + 1], state) {
            (Some(before), Some(after), Some(found)) => self.run.system.is_between(before, after, found),
            _ => false,
        };
        if index.is_none() && !(from..to).any(is_between) {
            return Err(format!("recovered to {state:?}, allowed {:?}", &states[from..=to]));
        }
        Ok(index)
    }

    /// Runs check 4: crashes inside the recovery of an image, and directly after it.
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

    /// Stops at each distinguishable crash point of a recovery.
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
            // A state seen after open must persist.
            visit(cache, at, if seen { Allowed::only(index) } else { allowed })
        })
    }
}
