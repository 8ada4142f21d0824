//! Check 3: life goes on after recovery, and crashes again.

use std::sync::Arc;

use crate::cache::Cache;
use crate::explore::{Explorer, Worker};
use crate::image::{Dice, Mattered, Sample, mix};
use crate::judge::{Case, Image, Recovered, keep};
use crate::lines::Lines;
use crate::met::Standing;
use crate::points::walk;
use crate::sim::Sim;
use crate::system::{System, guarded};
use crate::trace::{Event, Mark};

/// Operations of most lives, at most.
const SHORT: usize = 12;
/// Images of a crash inside the last operation of a life: visited, and drawn beyond that.
const IMAGES: (u64, Sample) = (32, Sample { extremes: 64, drawn: 8 });

impl<S: System> Explorer<'_, S> {
    /// More operations on what was recovered, and a crash in the last of them.
    pub(crate) fn go_on(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        recovered: Recovered<S>,
    ) -> Result<(), String> {
        let hash = worker.stage.hash();
        let standing = match self.run.scenario.then.is_empty() {
            true => Standing::UnderWay,
            false => self.lives.meet(hash, (), 0),
        };
        if !matches!(standing, Standing::New) {
            self.run.system.abandon(recovered.live);
            worker.stage.note(&recovered.sim.take_trace());
            if let Standing::Done(reads) = standing {
                worker.reads.add_all(&reads);
            }
            return Ok(());
        }
        let outer = std::mem::replace(&mut worker.reads, Lines::none(worker.stage.memory()));
        worker.report.lives += 1;
        let mut dice = Dice(hash ^ mix(self.budget.seed));
        let then = self.plan(&mut dice);
        let inside = dice.roll(self.budget.life_crashes as usize) == 0;
        self.live(worker, case, recovered, &then, inside)
            .map_err(|what| format!("life after recovery, {then:?}: {what}"))?;
        outer.add_all(&worker.reads);
        let reads = std::mem::replace(&mut worker.reads, outer);
        self.lives.finish(hash, (), reads);
        Ok(())
    }

    /// What is done to a recovered structure: every eighth goes through everything, the others
    /// begin and end anywhere, so that each operation comes first, and last before a crash.
    fn plan(&self, dice: &mut Dice) -> Vec<S::Op> {
        let then = &self.run.scenario.then;
        if dice.roll(8) == 0 {
            return then.clone();
        }
        let (first, count) = (dice.roll(then.len()), 1 + dice.roll(then.len().min(SHORT)));
        then.iter().cycle().skip(first).take(count).cloned().collect()
    }

    fn live(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        recovered: Recovered<S>,
        then: &[S::Op],
        inside: bool,
    ) -> Result<(), String> {
        let Recovered { mut live, state: mut model, mut trace, sim, .. } = recovered;
        let mut before = model.clone();
        let lived = guarded(|| {
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
        let lived_trace = sim.take_trace();
        worker.stage.note(&lived_trace);
        worker.reads.add_all(sim.reads());
        trace.extend(&lived_trace[..lived?]);
        let last = trace.iter().position(|event| matches!(event, Event::Mark(Mark::Begin(0))));
        let last = last.unwrap_or(trace.len());

        let mut cache = Cache::over(self.mode, Arc::clone(case.base), case.image.clone());
        trace[..last].iter().for_each(|event| cache.feed(event));
        let states = [&before, &model];
        walk(self.mode, &mut cache, last, &trace, case.allowed, &mut |cache, at, allowed| {
            let due = &states[allowed.from..=allowed.to];
            if matches!(trace[at], Event::Mark(_)) {
                return self.extremes(worker, cache, due);
            }
            if inside { self.images_inside(worker, cache, at, due) } else { Ok(()) }
        })
    }

    /// Opens the image that keeps nothing unpromised, and the one that keeps everything.
    fn extremes(&self, worker: &mut Worker, cache: &Cache, due: &[&S::State]) -> Result<(), String> {
        let possible = cache.possible();
        let all = if possible.lines.is_empty() { &[true][..] } else { &[false, true] };
        for &everything in all {
            let choice = possible.lines.iter().map(|kept| if everything { kept.all } else { 0 });
            let image = keep(&possible, &choice.collect::<Vec<_>>(), cache.durable().clone());
            self.reopen(worker, &image, due).map_err(|what| format!("then a crash: {what}"))?;
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
        let mut image = cache.durable().clone();
        let visited = possible.visit(
            |runs| runs < IMAGES.0,
            IMAGES.1,
            at as u64,
            |choice| {
                image = keep(&possible, choice, std::mem::take(&mut image));
                self.reopen(worker, &image, due).map(|reads| Mattered::These(Arc::new(reads)))
            },
        );
        visited.map(drop).map_err(|what| format!("then a crash in the last operation: {what}"))
    }

    /// Opens an image, which must hold one of the states that are due.
    fn reopen(&self, worker: &mut Worker, image: &Image, due: &[&S::State]) -> Result<Lines, String> {
        worker.stage.load(image);
        worker.report.reopened += 1;
        let system = self.run.system;
        let sim = Sim::mutated(worker.stage.memory(), self.mutation);
        let seen = guarded(|| {
            let live = system.open(&sim)?.ok_or("nothing is there any more")?;
            let seen = system.observe(&live)?;
            system.abandon(live);
            Ok(seen)
        });
        worker.stage.note(&sim.take_trace());
        worker.reads.add_all(sim.reads());
        expect_state(&seen?, due)?;
        let reads = Lines::none(worker.stage.memory());
        reads.add_all(sim.reads());
        Ok(reads)
    }
}

fn expect_state<T: std::fmt::Debug + Eq>(seen: &T, due: &[&T]) -> Result<(), String> {
    if due.contains(&seen) { Ok(()) } else { Err(format!("{seen:?} instead of {due:?}")) }
}
