//! Recoveries that do not end are failures, reported with their position.

use std::process::{Command, Stdio};
use std::sync::Mutex;

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Persist, Word};
use bristlecone_sim::{Budget, Memory, Mode, Report, Scenario, Sim, System, explore};

/// The endless loop of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loop {
    Reads,
    Flushes,
    Waits,
    /// A loop without any access to the medium.
    Computes,
}

/// A number whose recovery does not end after a crash.
struct Number(Loop);

impl Number {
    fn word(sim: &Sim) -> &Word {
        &sim.memory().words(0, 1)[0]
    }
}

impl System for Number {
    type Op = u64;
    type State = u64;
    type Live = Sim;

    fn memory(&self) -> Memory {
        Memory::new(64)
    }

    fn create(&self, sim: &Sim) -> Result<Sim, String> {
        Ok(sim.clone())
    }

    fn open(&self, sim: &Sim) -> Result<Option<Sim>, String> {
        static HELD: Mutex<()> = Mutex::new(());
        let word = Self::word(sim);
        sim.persist(word, "number recover.1");
        if word.load(sim) != 0 {
            match self.0 {
                Loop::Reads => while word.load(sim) != 0 {},
                Loop::Flushes => loop {
                    sim.persist(word, "number recover.1");
                },
                Loop::Waits => {
                    let _held = HELD.lock();
                    drop(wait::lock(&HELD));
                }
                Loop::Computes => loop {
                    std::hint::spin_loop();
                },
            }
        }
        Ok(Some(sim.clone()))
    }

    fn abandon(&self, _: Sim) {}

    fn fresh(&self) -> u64 {
        0
    }

    fn predict(&self, state: &mut u64, op: &u64) -> String {
        *state = *op;
        String::new()
    }

    fn apply(&self, live: &mut Sim, op: &u64) -> Result<String, String> {
        Self::word(live).store(live, *op);
        live.persist(Self::word(live), "number put");
        Ok(String::new())
    }

    fn observe(&self, live: &Sim) -> Result<u64, String> {
        Ok(Self::word(live).load(live))
    }
}

fn explored(kind: Loop) -> Report {
    let scenario = Scenario { name: "put", creation: false, setup: vec![], ops: vec![1], then: vec![] };
    explore(&Number(kind), &scenario, Mode::Prefix, Budget { threads: 1, ..Budget::quick() })
}

#[test]
fn recovery_without_end_fails_and_names_the_last_step() {
    for (kind, why) in [
        (Loop::Reads, "the run does not end"),
        (Loop::Flushes, "the run does not end"),
        (Loop::Waits, "the run waits for ever"),
    ] {
        let failure = explored(kind).failures.pop().expect("it looped");
        println!("{failure}");
        assert!(failure.what.contains(why), "{kind:?}: {failure}");
        assert!(failure.what.contains("the last named step was \"number recover.1\""), "{kind:?}: {failure}");
    }
}

/// A loop without accesses can only be ended with its process, which reports its position.
#[test]
fn recovery_that_only_computes_without_end_aborts_the_process() {
    const CHILD: &str = "BRISTLECONE_LOOPS";
    if std::env::var_os(CHILD).is_some() {
        explored(Loop::Computes);
        unreachable!("it does not end");
    }
    let name = "endless::recovery_that_only_computes_without_end_aborts_the_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .env("BRISTLECONE_RUN_SECONDS", "1")
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(
        !child.status.success() && said.contains("the run does not end: 1 s without an access"),
        "{said}"
    );
    assert!(said.contains("number recover.1"), "{said}");
}
