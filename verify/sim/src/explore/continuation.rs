//! Check 3: operations continue after recovery, and crash again.

use std::sync::Arc;

use crate::explore::explorer::{Explorer, Worker};
use crate::explore::points::{Allowed, walk};
use crate::explore::system::System;
use crate::explore::verify::{Case, Image, Recovered, keep};
use crate::explore::visited::Standing;
use crate::medium::guard::guarded;
use crate::medium::sim::Sim;
use crate::model::cache::Cache;
use crate::model::image::{Mattered, Sample};
use crate::model::lines::WordSet;
use crate::model::trace::{Event, Mark};
use bristlecone_random::{Generator, mix};

/// Maximum number of operations of most continuations.
const SHORT: usize = 12;
/// Images of a crash inside the last operation of a continuation: visited, and drawn beyond that.
const IMAGES: (u64, u64) = (32, 8);
/// Number of contents of each line that are tried alone there.
const EXTREMES: usize = 64;

impl<S: System> Explorer<'_, S> {
    /// Continues with more operations on the recovered structure, and crashes in the last of them.
    pub(crate) fn continue_after(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        recovered: Recovered<S>,
    ) -> Result<(), String> {
        let mut cache = Cache::over(self.mode, Arc::clone(case.base), case.image.clone());
        recovered.trace.iter().for_each(|event| cache.feed(event));
        // A continuation depends on the recovered contents, and its crashes on which of them are
        // durable.
        let hash = mix(worker.scratch.hash()).wrapping_add(cache.durable_hash());
        let settled = cache.take_overwritten(worker.scratch.memory());
        recovered.sim.begin_again();
        let standing = match self.run.scenario.then.is_empty() {
            true => Standing::UnderWay,
            false => self.continuations.enter(hash, (), 0, worker.number),
        };
        match &standing {
            Standing::New | Standing::UnderWay => {}
            Standing::Elsewhere => worker.reads.add_everything(),
            Standing::Done(reads) => worker.reads.add_others(reads, &settled),
        }
        if !matches!(standing, Standing::New) {
            self.run.system.abandon(recovered.live);
            worker.scratch.note(&recovered.sim.take_trace());
            return Ok(());
        }
        let outer = std::mem::replace(&mut worker.reads, WordSet::none(worker.scratch.memory()));
        worker.report.continuations += 1;
        let mut generator = Generator::new(hash ^ mix(self.budget.seed));
        let then = self.plan(&mut generator);
        let inside = generator.index(self.budget.continuation_crashes as usize) == 0;
        self.run_continuation(worker, (cache, case.allowed), recovered, &then, inside)
            .map_err(|what| format!("continuation after recovery, {then:?}: {what}"))?;
        outer.add_others(&worker.reads, &settled);
        let reads = std::mem::replace(&mut worker.reads, outer);
        self.continuations.finish(hash, (), reads);
        Ok(())
    }

    /// Draws operations on a recovered structure. Every eighth continuation runs all operations; the
    /// others begin and end anywhere, so that each operation comes first, and last before a crash.
    fn plan(&self, generator: &mut Generator) -> Vec<S::Op> {
        let then = &self.run.scenario.then;
        if generator.index(8) == 0 {
            return then.clone();
        }
        let (first, count) = (generator.index(then.len()), 1 + generator.index(then.len().min(SHORT)));
        then.iter().cycle().skip(first).take(count).cloned().collect()
    }

    fn run_continuation(
        &self,
        worker: &mut Worker,
        (mut cache, allowed): (Cache, Allowed),
        recovered: Recovered<S>,
        then: &[S::Op],
        inside: bool,
    ) -> Result<(), String> {
        let Recovered { mut live, state: mut model, sim, .. } = recovered;
        let mut before = model.clone();
        let ran = guarded(|| {
            for (at, op) in then.iter().enumerate() {
                if at + 1 == then.len() {
                    sim.mark(Mark::Begin(0));
                    before = model.clone();
                }
                self.run.step(&mut live, &mut model, op)?;
            }
            sim.mark(Mark::End(0));
            let events = sim.events();
            let seen = self.run.system.observe(&live)?;
            self.run.system.abandon(live);
            expect_state(&seen, &[&model])?;
            Ok(events)
        });
        let trace = sim.take_trace();
        worker.scratch.note(&trace);
        worker.reads.add_all(sim.reads());
        let trace = &trace[..ran?];
        let last = trace.iter().position(|event| matches!(event, Event::Mark(Mark::Begin(0))));
        let last = last.unwrap_or(trace.len());

        trace[..last].iter().for_each(|event| cache.feed(event));
        let states = [&before, &model];
        walk(self.mode, &mut cache, last, trace, allowed, &mut |cache, at, allowed| {
            let due = &states[allowed.from..=allowed.to];
            if matches!(trace[at], Event::Mark(_)) {
                return self.extremes(worker, cache, due);
            }
            if inside { self.images_inside(worker, cache, at, due) } else { Ok(()) }
        })
    }

    /// Opens the image with promised stores only, and the one with all stores.
    fn extremes(&self, worker: &mut Worker, cache: &Cache, due: &[&S::State]) -> Result<(), String> {
        let possible = cache.possible();
        let overwritten = cache.overwritten(worker.scratch.memory());
        let all = if possible.lines.is_empty() { &[true][..] } else { &[false, true] };
        for &everything in all {
            let choice = possible.lines.iter().map(|kept| if everything { kept.all } else { 0 });
            let image = keep(&possible, &choice.collect::<Vec<_>>(), cache.durable().clone());
            let reads = self.reopen(worker, &image, due).map_err(|what| format!("then a crash: {what}"))?;
            worker.reads.add_others(&reads, &overwritten);
        }
        Ok(())
    }

    fn images_inside(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        at: usize,
        due: &[&S::State],
    ) -> Result<(), String> {
        let possible = cache.possible();
        let overwritten = cache.overwritten(worker.scratch.memory());
        let mut image = cache.durable().clone();
        let sample = Sample { extremes: EXTREMES, lines: self.budget.lines, drawn: IMAGES.1 };
        let visited = possible.visit(
            |runs| runs < IMAGES.0,
            sample,
            at as u64,
            |choice| {
                image = keep(&possible, choice, std::mem::take(&mut image));
                let reads = self.reopen(worker, &image, due)?;
                worker.reads.add_others(&reads, &overwritten);
                Ok(Mattered::These(Arc::new(reads)))
            },
        );
        let truncated = visited.map_err(|what| format!("then a crash in the last operation: {what}"))?;
        worker.report.in_continuations.count(!truncated);
        Ok(())
    }

    /// Opens an image, which must hold one of the expected states. Returns the words it read.
    fn reopen(&self, worker: &mut Worker, image: &Image, due: &[&S::State]) -> Result<WordSet, String> {
        worker.scratch.load(image);
        worker.report.reopened += 1;
        let system = self.run.system;
        let sim = Sim::explored(worker.scratch.memory(), self.mode, self.mutation);
        let seen = guarded(|| {
            let live = system.open(&sim)?.ok_or("nothing is there any more")?;
            let seen = system.observe(&live)?;
            system.abandon(live);
            Ok(seen)
        });
        worker.scratch.note(&sim.take_trace());
        expect_state(&seen?, due)?;
        let reads = WordSet::none(worker.scratch.memory());
        reads.add_all(sim.reads());
        Ok(reads)
    }
}

fn expect_state<T: std::fmt::Debug + Eq>(seen: &T, due: &[&T]) -> Result<(), String> {
    if due.contains(&seen) { Ok(()) } else { Err(format!("{seen:?} instead of {due:?}")) }
}
