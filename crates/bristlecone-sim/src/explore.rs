//! The explorer.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::cache::{Cache, Domain};
use crate::image::{Possible, line_hash};
use crate::memory::{LINE_WORDS, Line};
use crate::report::{Crash, Failure, Report};
use crate::sim::{Mutation, Sim};
use crate::stage::Stage;
use crate::system::{Scenario, System, guarded};
use crate::trace::{Event, Mark};

/// How far an exploration goes.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Crash points with at most this many images are exhausted.
    pub exhaustive: u64,
    /// Of others, so many images are drawn beside the extremes.
    pub sampled: u64,
    /// The same two for crashes inside recovery.
    pub nested: (u64, u64),
    /// How many crashes in a row: 1 is a crash with an undisturbed recovery.
    pub depth: u32,
    /// Workers.
    pub threads: usize,
}

impl Budget {
    /// What a test run on few cores can afford.
    pub fn quick() -> Self {
        Self {
            exhaustive: 4096,
            sampled: 1024,
            nested: (256, 64),
            depth: 2,
            threads: 2,
        }
    }
}

/// Explores every crash of a scenario.
pub fn explore<S: System>(
    system: &S,
    scenario: &Scenario<S::Op>,
    domain: Domain,
    budget: Budget,
) -> Report {
    explore_with(system, scenario, domain, budget, None)
}

/// [`explore`], with the code under test behaving as if it were changed.
pub fn explore_with<S: System>(
    system: &S,
    scenario: &Scenario<S::Op>,
    domain: Domain,
    budget: Budget,
    mutation: Option<Mutation>,
) -> Report {
    let mut report = Report {
        scenario: format!("{} ({domain})", scenario.name),
        ..Report::default()
    };
    let memory = system.memory();
    let start = Cache::new(domain, &memory);
    let sim = Sim::mutated(&memory, mutation);
    let mut run = Run {
        system,
        scenario,
        states: Vec::new(),
        ops: Vec::new(),
        trace: Vec::new(),
    };
    let ran = guarded(|| run.perform(&sim));
    run.trace = sim.take_trace();
    report
        .sites
        .extend(run.trace.iter().filter_map(Event::site));
    report.mutated |= sim.was_mutated();
    if let Err(what) = ran {
        let name = scenario.name.to_owned();
        report.failures.push(Failure {
            scenario: name,
            domain,
            crashes: Vec::new(),
            what,
        });
        return report;
    }
    let explorer = Explorer {
        run: &run,
        start,
        domain,
        budget,
        mutation,
        next_point: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        images: Shards::default(),
        lives: Shards::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..budget.threads.max(1))
            .map(|_| scope.spawn(|| explorer.work()))
            .collect();
        for worker in workers {
            report.merge(worker.join().expect("a worker of the explorer panicked"));
        }
    });
    report
}

/// The one run of a scenario, and what was true at each of its steps.
struct Run<'a, S: System> {
    system: &'a S,
    scenario: &'a Scenario<S::Op>,
    /// `states[i]` holds before operation `i`; `None` before creation.
    states: Vec<Option<S::State>>,
    ops: Vec<String>,
    trace: Vec<Event>,
}

impl<S: System> Run<'_, S> {
    fn perform(&mut self, sim: &Sim) -> Result<(), String> {
        let Scenario {
            creation,
            setup,
            ops,
            ..
        } = self.scenario;
        if *creation {
            self.states.push(None);
            self.ops.push("creation".to_owned());
            sim.mark(Mark::Begin(0));
        }
        let mut live = self.system.create(sim)?;
        let mut state = self.system.fresh();
        if *creation {
            sim.mark(Mark::End(0));
        } else {
            for op in setup {
                self.step(&mut live, &mut state, op)?;
            }
        }
        self.states.push(Some(state.clone()));
        let explored = setup.iter().filter(|_| *creation).chain(ops);
        for op in explored {
            let number = self.ops.len();
            self.ops.push(format!("{op:?}"));
            sim.mark(Mark::Begin(number));
            self.step(&mut live, &mut state, op)?;
            sim.mark(Mark::End(number));
            self.states.push(Some(state.clone()));
        }
        let seen = self.system.observe(&live)?;
        self.system.abandon(live);
        if seen != state {
            return Err(format!("before any crash: {seen:?} instead of {state:?}"));
        }
        Ok(())
    }

    fn step(&self, live: &mut S::Live, state: &mut S::State, op: &S::Op) -> Result<(), String> {
        let due = self.system.predict(state, op);
        let answer = self.system.apply(live, op)?;
        if answer != due {
            return Err(format!("{op:?} answered {answer} instead of {due}"));
        }
        Ok(())
    }
}

/// Hashes that were met already, and how many crashes in a row it took at least.
struct Shards<K>([Mutex<HashMap<(u64, K), u32>>; 16]);

impl<K> Default for Shards<K> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<K: Eq + std::hash::Hash> Shards<K> {
    /// Whether it was not met yet with so few crashes.
    fn insert(&self, hash: u64, key: K, depth: u32) -> bool {
        let mut shard = self.0[hash as usize % 16]
            .lock()
            .expect("nothing panics here");
        let met = shard.entry((hash, key)).or_insert(u32::MAX);
        let first = depth < *met;
        *met = depth.min(*met);
        first
    }
}

/// The states allowed after a crash: `states[from..=to]` of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Allowed {
    from: usize,
    to: usize,
}

struct Explorer<'a, S: System> {
    run: &'a Run<'a, S>,
    start: Cache,
    domain: Domain,
    budget: Budget,
    mutation: Option<Mutation>,
    next_point: AtomicUsize,
    stop: AtomicBool,
    images: Shards<Allowed>,
    lives: Shards<()>,
}

/// What one worker carries from image to image.
struct Worker {
    stage: Stage,
    report: Report,
    crashes: Vec<Crash>,
}

/// An image: the worker's base but for these lines.
type Image = HashMap<u32, Line>;

impl<S: System> Explorer<'_, S> {
    fn work(&self) -> Report {
        let mut cache = self.start.clone();
        let mut events = self.run.trace.iter().enumerate().peekable();
        while let Some((_, event)) = events.next_if(|(_, event)| !matches!(event, Event::Mark(_))) {
            cache.feed(event);
        }
        cache.rebase();
        let memory = self.run.system.memory();
        let stage = Stage::new(memory, cache.base());
        let mut worker = Worker {
            stage,
            report: Report::default(),
            crashes: Vec::new(),
        };
        let first = events.peek().map_or(self.run.trace.len(), |(at, _)| *at);
        let mut mine = self.next_point.fetch_add(1, Relaxed);
        let mut point = 0;
        let allowed = Allowed { from: 0, to: 0 };
        let walked = self.walk(
            &mut cache,
            first,
            &self.run.trace,
            allowed,
            &mut |cache, at, allowed| {
                if self.stop.load(Relaxed) {
                    return Ok(());
                }
                if point == mine {
                    mine = self.next_point.fetch_add(1, Relaxed);
                    worker.report.crash_points += 1;
                    self.crash(&mut worker, cache, &self.run.trace, at, allowed, 1)?;
                }
                point += 1;
                Ok(())
            },
        );
        if let Err(what) = walked {
            self.stop.store(true, Relaxed);
            let (scenario, crashes) = (self.run.scenario.name.to_owned(), worker.crashes);
            let failure = Failure {
                scenario,
                domain: self.domain,
                crashes,
                what,
            };
            worker.report.failures.push(failure);
        }
        worker.report
    }

    /// Feeds a trace to the cache and stops at each moment that is worth a crash.
    fn walk(
        &self,
        cache: &mut Cache,
        first: usize,
        trace: &[Event],
        mut allowed: Allowed,
        visit: &mut impl FnMut(&Cache, usize, Allowed) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut visited = None;
        for (at, event) in trace.iter().enumerate().skip(first) {
            let (crash, before) = match event {
                Event::Mark(Mark::Begin(op)) => {
                    allowed = Allowed {
                        from: *op,
                        to: op + 1,
                    };
                    (false, true)
                }
                Event::Mark(Mark::End(op)) => {
                    allowed = Allowed {
                        from: op + 1,
                        to: op + 1,
                    };
                    (true, true)
                }
                Event::Mark(Mark::Opened) => (true, true),
                Event::Store { .. } => (self.domain == Domain::Eadr, false),
                Event::Fence { .. } | Event::Locked { .. } => (true, true),
                Event::Flush { .. } | Event::Order => (false, true),
            };
            if !before {
                cache.feed(event);
            }
            let moment = Some((cache.stores(), allowed));
            // Promises alone only take images away: without a store nothing new can be left.
            if crash && moment != visited {
                visit(cache, at, allowed)?;
                visited = moment;
            }
            if before {
                cache.feed(event);
            }
        }
        Ok(())
    }

    /// Visits the images of one crash point.
    fn crash(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        trace: &[Event],
        at: usize,
        allowed: Allowed,
        depth: u32,
    ) -> Result<(), String> {
        let possible = cache.possible();
        let (exhaustive, sampled) = if depth == 1 {
            (self.budget.exhaustive, self.budget.sampled)
        } else {
            self.budget.nested
        };
        let durable = cache.durable();
        let base = cache.base();
        let hash = |line: u32, contents: &Line| {
            line_hash(line, contents).wrapping_sub(line_hash(line, &base[line as usize]))
        };
        let settled = durable
            .iter()
            .filter(|(line, _)| possible.lines.iter().all(|k| k.line != **line));
        let settled = settled
            .map(|(line, contents)| hash(*line, contents))
            .fold(0, u64::wrapping_add);
        let hashes: Vec<Vec<u64>> = possible
            .lines
            .iter()
            .map(|kept| {
                kept.contents
                    .iter()
                    .map(|contents| hash(kept.line, contents))
                    .collect()
            })
            .collect();
        let mut image = durable.clone();
        let truncated = possible.visit(exhaustive, sampled, at as u64, |choice| {
            if depth == 1 {
                worker.report.images += 1
            } else {
                worker.report.nested_images += 1
            }
            let of_lines = hashes.iter().zip(choice).map(|(of_line, at)| of_line[*at]);
            let hash = of_lines.fold(settled, u64::wrapping_add);
            if !self.images.insert(hash, allowed, depth) || self.stop.load(Relaxed) {
                return Ok(());
            }
            for (kept, at) in possible.lines.iter().zip(choice) {
                image.insert(kept.line, kept.contents[*at]);
            }
            worker.report.opened += 1;
            self.open(worker, cache, &image, allowed, depth)
                .inspect_err(|_| {
                    let crash = self.describe(&possible, choice, trace, at, depth);
                    worker.crashes.insert(0, crash);
                })
        })?;
        worker.report.truncated_points += u64::from(truncated);
        Ok(())
    }

    /// Opens one image and does to it everything that is checked.
    fn open(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        image: &Image,
        allowed: Allowed,
        depth: u32,
    ) -> Result<(), String> {
        worker.stage.load(image);
        let sim = Sim::mutated(worker.stage.memory(), self.mutation);
        let mut trace = Vec::new();
        let mut state_found = None;
        let recovered = guarded(|| {
            let Some(live) = self.run.system.open(&sim)? else {
                return Ok(None);
            };
            sim.mark(Mark::Opened);
            let state = self.run.system.observe(&live)?;
            Ok(Some((live, state)))
        });
        trace.extend(sim.take_trace());
        worker.stage.note(&trace);
        let opened_events = trace.len();
        worker
            .report
            .sites
            .extend(trace.iter().filter_map(Event::site));
        worker.report.mutated |= sim.was_mutated();
        let checked = match recovered {
            Err(what) => Err(what),
            Ok(None) => self.accept(&None, allowed).map(|_| None),
            Ok(Some((live, state))) => {
                let state = Some(state);
                match self.accept(&state, allowed) {
                    Ok(index) => {
                        state_found = state;
                        Ok(Some((live, index)))
                    }
                    Err(what) => {
                        self.run.system.abandon(live);
                        worker.stage.note(&sim.take_trace());
                        Err(what)
                    }
                }
            }
        };
        let index = match checked {
            Err(what) => return Err(what),
            Ok(None) => return Ok(()),
            Ok(Some((live, index))) => {
                let hash = worker.stage.hash();
                let model = state_found.expect("an open structure was observed");
                self.go_on(worker, cache, image, &sim, live, model, &mut trace, hash)?;
                index
            }
        };
        if depth < self.budget.depth {
            trace.truncate(opened_events);
            self.crash_again(worker, cache, image, &trace, allowed, index, depth + 1)?;
        }
        Ok(())
    }

    /// Check 2: which of the allowed states this is.
    fn accept(&self, state: &Option<S::State>, allowed: Allowed) -> Result<usize, String> {
        let states = &self.run.states;
        (allowed.from..=allowed.to)
            .find(|index| states[*index] == *state)
            .ok_or_else(|| {
                let due: Vec<_> = (allowed.from..=allowed.to)
                    .map(|index| &states[index])
                    .collect();
                format!("recovered to {state:?}, allowed {due:?}")
            })
    }

    /// Check 3: more operations, then a crash that keeps nothing unpromised, or everything.
    #[expect(
        clippy::too_many_arguments,
        reason = "one image and what is known of it"
    )]
    fn go_on(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        image: &Image,
        sim: &Sim,
        mut live: S::Live,
        mut model: S::State,
        trace: &mut Vec<Event>,
        hash: u64,
    ) -> Result<(), String> {
        let system = self.run.system;
        let then = &self.run.scenario.then;
        if then.is_empty() || !self.lives.insert(hash, (), 0) {
            system.abandon(live);
            worker.stage.note(&sim.take_trace());
            return Ok(());
        }
        worker.report.lives += 1;
        let lived = guarded(|| {
            for op in then {
                self.run.step(&mut live, &mut model, op)?;
            }
            let seen = system.observe(&live)?;
            if seen != model {
                return Err(format!("{seen:?} instead of {model:?}"));
            }
            let events = sim.events();
            system.abandon(live);
            Ok(events)
        });
        let lived_trace = sim.take_trace();
        worker.stage.note(&lived_trace);
        let events = lived.map_err(|what| format!("life after recovery: {what}"))?;
        trace.extend(&lived_trace[..events]);

        let mut after = Cache::over(
            self.domain,
            std::sync::Arc::clone(cache.base()),
            image.clone(),
        );
        trace.iter().for_each(|event| after.feed(event));
        let possible = after.possible();
        for everything in [false, true] {
            let mut image = after.durable().clone();
            for kept in &possible.lines {
                image.insert(
                    kept.line,
                    kept.contents[if everything { kept.all } else { 0 }],
                );
            }
            worker.stage.load(&image);
            let sim = Sim::mutated(worker.stage.memory(), self.mutation);
            let seen = guarded(|| {
                let live = system.open(&sim)?.ok_or("nothing is there any more")?;
                let seen = system.observe(&live)?;
                system.abandon(live);
                Ok(seen)
            });
            worker.stage.note(&sim.take_trace());
            let seen = seen.map_err(|what| format!("crash after recovery and {then:?}: {what}"))?;
            if seen != model {
                return Err(format!(
                    "crash after recovery and {then:?}: {seen:?} instead of {model:?}"
                ));
            }
        }
        Ok(())
    }

    /// Check 4: crashes inside the recovery of an image, and right after it.
    #[expect(
        clippy::too_many_arguments,
        reason = "one image and what is known of it"
    )]
    fn crash_again(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        image: &Image,
        trace: &[Event],
        allowed: Allowed,
        index: usize,
        depth: u32,
    ) -> Result<(), String> {
        if trace.iter().all(|event| event.stored().is_none()) {
            return Ok(());
        }
        let base = std::sync::Arc::clone(cache.base());
        let mut inner = Cache::over(self.domain, base, image.clone());
        self.walk(&mut inner, 0, trace, allowed, &mut |cache, at, allowed| {
            let seen = matches!(trace[at], Event::Mark(Mark::Opened));
            // What was seen after opening must stay.
            let allowed = if seen {
                Allowed {
                    from: index,
                    to: index,
                }
            } else {
                allowed
            };
            self.crash(worker, cache, trace, at, allowed, depth)
        })
    }

    fn describe(
        &self,
        possible: &Possible,
        choice: &[usize],
        trace: &[Event],
        at: usize,
        depth: u32,
    ) -> Crash {
        let op = trace[..at].iter().rev().find_map(|event| match event {
            Event::Mark(Mark::Begin(op)) => Some(format!("operation {op}, {}", self.run.ops[*op])),
            _ => None,
        });
        let during = if depth > 1 {
            "recovery".to_owned()
        } else {
            op.unwrap_or_default()
        };
        let next = match trace[at].site() {
            Some(site) => site.to_string(),
            None => format!("{:?}", trace[at]),
        };
        let changed = |from: &Line, to: &Line| {
            let words = (0..LINE_WORDS).filter(|word| from[*word] != to[*word]);
            let words: Vec<_> = words
                .map(|word| format!("[{word}] {:#x} -> {:#x}", from[word], to[word]))
                .collect();
            if words.is_empty() {
                "nothing".to_owned()
            } else {
                words.join(", ")
            }
        };
        let kept = possible
            .lines
            .iter()
            .zip(choice)
            .take(16)
            .map(|(kept, chosen)| {
                let [durable, last, now] = [0, kept.all, *chosen].map(|at| &kept.contents[at]);
                format!(
                    "line {} (byte {:#x}) keeps {} of {} (choice {chosen} of {})",
                    kept.line,
                    kept.line as usize * bristlecone_pm::LINE_BYTES,
                    changed(durable, now),
                    changed(durable, last),
                    kept.contents.len()
                )
            });
        Crash {
            during,
            event: at,
            next,
            kept: kept.collect(),
        }
    }
}
