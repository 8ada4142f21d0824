//! Runs mutants against the tests that own their files and reach them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::compile::Program;
use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::results::{Line, Outcome, Results};
use crate::suite::{Baseline, Ended, Known, Test, in_parallel, run, take_reached, tests_of};

/// A test with a mutant may take this many times its processor time without one, plus a constant.
const TIMES_LONGER: u32 = 6;
const WHILE: Duration = Duration::from_secs(10);

/// State shared by the runs of mutants.
pub struct Runs<'a> {
    pub plan: &'a Plan,
    pub programs: &'a [Program],
    pub work: &'a Path,
    pub jobs: usize,
    /// Tests that take more processor time than this without a mutant are omitted.
    pub longest: Duration,
    pub stop: &'a AtomicBool,
}

/// An error of one of several threads: the first one is kept, and the others stop.
struct Failure<'a> {
    first: Mutex<Option<String>>,
    stop: &'a AtomicBool,
}

impl Failure<'_> {
    fn of<T>(&self, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|error| {
                self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                self.stop.store(true, Relaxed);
            })
            .ok()
    }

    fn into_result(self) -> Result<(), String> {
        self.first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

impl Runs<'_> {
    /// Runs every test that owns one of the files once without a mutant, unless the mutants it
    /// reaches are known.
    pub fn baseline(&self, files: &HashSet<&str>) -> Result<Baseline, String> {
        let path = self.work.join("baseline.json");
        let mut baseline = Baseline::load(&path, self.programs);
        // Tests that were ended earlier than the present limit must run again.
        baseline.known.retain(|known| !known.cut_short || known.millis >= self.longest.as_millis() as u64);
        let mut missing = Vec::new();
        for test in self.owning(files)? {
            if !baseline.known.iter().any(|known| known.test == test) {
                missing.push(test);
            }
        }
        let bar = bar(missing.len(), "tests without mutants");
        let failure = Failure { first: Mutex::default(), stop: self.stop };
        let baseline = Mutex::new(baseline);
        in_parallel(&missing, self.jobs, self.stop, &|test| {
            let Some(Some(known)) = failure.of(self.record(test)) else { return };
            if known.cut_short {
                let longest = self.longest.as_secs();
                bar.suspend(|| eprintln!("takes more than {longest} s, and is left out: {test}"));
            } else if !known.passed {
                bar.suspend(|| eprintln!("fails without any mutant, and is left out: {test}"));
            }
            let mut baseline = baseline.lock().unwrap_or_else(PoisonError::into_inner);
            baseline.known.push(known);
            failure.of(baseline.save(&path));
            bar.inc(1);
        });
        bar.finish_and_clear();
        failure.into_result()?;
        Ok(baseline.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the tests that own any of these files.
    fn owning(&self, files: &HashSet<&str>) -> Result<Vec<Test>, String> {
        let mut wanted = Vec::new();
        for owner in files.iter().filter_map(|file| self.plan.owner(file)) {
            wanted.extend(owner.tests()?);
        }
        let mut found = Vec::new();
        for program in self.programs {
            let of = |tests: &&crate::plan::Tests| {
                (&tests.package, &tests.target) == (&program.package, &program.target)
            };
            let filters: Vec<_> = wanted.iter().filter(of).map(|tests| tests.filter.as_str()).collect();
            let tests = tests_of(program)?;
            found.extend(
                tests.into_iter().filter(|test| filters.iter().any(|filter| test.name.contains(filter))),
            );
        }
        Ok(found)
    }

    fn record(&self, test: &Test) -> Result<Option<Known>, String> {
        let reached = self.scratch(test, "record");
        let program = self.program(test)?;
        let (ended, took) = run(program, test, "record", &reached, self.longest, self.stop)?;
        let reached = take_reached(&reached);
        let known = Known {
            test: test.clone(),
            passed: ended == Ended::Passed,
            cut_short: ended == Ended::TimedOut,
            millis: took.as_millis() as u64,
            reached,
        };
        Ok((ended != Ended::Interrupted).then_some(known))
    }

    fn scratch(&self, test: &Test, state: &str) -> PathBuf {
        let name: String =
            test.to_string().chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        self.work.join(format!("reached-{state}-{name}"))
    }

    fn program(&self, test: &Test) -> Result<&Program, String> {
        let of = |program: &&Program| (&program.package, &program.target) == (&test.package, &test.target);
        self.programs.iter().find(of).ok_or_else(|| format!("{test}: not built"))
    }

    /// Runs mutants, and records the results. Returns all results, including those of earlier runs.
    pub fn mutants(
        &self,
        mutants: &[&Mutant],
        baseline: &Baseline,
        results: &Results,
    ) -> Result<BTreeMap<String, Line>, String> {
        let bar = bar(mutants.len(), "mutants");
        let all = Mutex::new(results.before.clone());
        let kills = Mutex::new(HashMap::<(String, Test), u64>::new());
        let failure = Failure { first: Mutex::default(), stop: self.stop };
        in_parallel(mutants, self.jobs, self.stop, &|mutant| {
            let Some(Some(line)) = failure.of(self.mutant(mutant, baseline, &kills)) else { return };
            failure.of(results.add(&line));
            if !line.outcome.is_noticed() {
                bar.suspend(|| println!("{:?} {mutant}", line.outcome));
            }
            all.lock().unwrap_or_else(PoisonError::into_inner).insert(line.mutant.clone(), line);
            bar.inc(1);
        });
        bar.finish_and_clear();
        failure.into_result()?;
        Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn mutant(
        &self,
        mutant: &Mutant,
        baseline: &Baseline,
        kills: &Mutex<HashMap<(String, Test), u64>>,
    ) -> Result<Option<Line>, String> {
        let begun = Instant::now();
        let state = mutant.id.to_string();
        let mut tests = self.tests_of(mutant, baseline)?;
        {
            // Fast tests that have detected many mutants of this file come first.
            let kills = kills.lock().unwrap_or_else(PoisonError::into_inner);
            let killed = |test: &Test| kills.get(&(mutant.file.clone(), test.clone())).copied().unwrap_or(0);
            tests.sort_by_cached_key(|known| (known.millis + 20) / (1 + killed(&known.test)));
        }
        let mut line = Line {
            mutant: mutant.key(),
            outcome: if tests.is_empty() { Outcome::Unreached } else { Outcome::Survived },
            by: None,
            tests: 0,
            millis: 0,
        };
        for known in tests {
            let reached = self.scratch(&known.test, &state);
            let limit = WHILE + Duration::from_millis(known.millis) * TIMES_LONGER;
            let (ended, _) =
                run(self.program(&known.test)?, &known.test, &state, &reached, limit, self.stop)?;
            take_reached(&reached);
            line.tests += 1;
            line.outcome = match ended {
                Ended::Passed => continue,
                Ended::Failed => Outcome::Killed,
                Ended::TimedOut => Outcome::TimedOut,
                Ended::Interrupted => return Ok(None),
            };
            line.by = Some(known.test.to_string());
            let mut kills = kills.lock().unwrap_or_else(PoisonError::into_inner);
            *kills.entry((mutant.file.clone(), known.test.clone())).or_default() += 1;
            break;
        }
        line.millis = begun.elapsed().as_millis() as u64;
        Ok(Some(line))
    }

    /// Returns the tests that own the mutant's file, reach the mutant, and pass without it.
    fn tests_of<'b>(&self, mutant: &Mutant, baseline: &'b Baseline) -> Result<Vec<&'b Known>, String> {
        let owner = self.plan.owner(&mutant.file).ok_or_else(|| format!("{} has no owner", mutant.file))?;
        let owners = owner.tests()?;
        let owns = |test: &Test| {
            let of = |tests: &&crate::plan::Tests| {
                (&tests.package, &tests.target) == (&test.package, &test.target)
            };
            owners.iter().filter(of).any(|tests| test.name.contains(&tests.filter))
        };
        let fits = |known: &&Known| known.passed && known.reached.contains(&mutant.id) && owns(&known.test);
        Ok(baseline.known.iter().filter(fits).collect())
    }
}

fn bar(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}, {eta} to go");
    let bar = ProgressBar::new(length as u64).with_message(what);
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}
