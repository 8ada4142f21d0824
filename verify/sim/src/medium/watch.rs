//! Detects endless runs of code under test.
//!
//! Accesses to the medium and rounds of waiting consume steps from a budget larger than any run needs. A loop
//! without these is detected by a timeout, which ends the process, because nothing else can stop it. In both
//! cases the report names the last named step of the thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use bristlecone_pm::Step;
use bristlecone_pm::sync::wait::simulate_waiting;

/// Maximum number of rounds that a run may wait for other threads.
const ROUNDS: u32 = 20_000;
/// Rounds after which waiting takes time.
const SHORT: u32 = 200;
/// Maximum duration of a run in seconds: thousands of times that of any run.
const SECONDS: u64 = 300;
/// Overrides the number of seconds.
const SECONDS_GIVEN: &str = "BRISTLECONE_RUN_SECONDS";

/// A thread that runs code under test.
struct Watched {
    /// Start of the present run, in milliseconds of the process plus one; zero: there is none.
    since: AtomicU64,
    step: Mutex<Step>,
}

thread_local! {
    static SELF: Arc<Watched> = enlist();
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

static WATCHED: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

fn enlist() -> Arc<Watched> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(std::thread::spawn(watch)));
    let watched = Arc::new(Watched { since: AtomicU64::new(0), step: Mutex::new("none") });
    let mut all = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|watched| watched.strong_count() > 0);
    all.push(Arc::downgrade(&watched));
    watched
}

fn now() -> u64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

fn watch() {
    let given = std::env::var(SECONDS_GIVEN).ok().and_then(|seconds| seconds.parse().ok());
    let limit = given.unwrap_or(SECONDS) * 1000;
    loop {
        std::thread::sleep(Duration::from_millis(limit.min(5000) / 5));
        let all: Vec<_> = WATCHED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for watched in all.iter().filter_map(Weak::upgrade) {
            let since = watched.since.load(Relaxed);
            if since != 0 && now().saturating_sub(since) > limit {
                let step = watched.step.lock().unwrap_or_else(PoisonError::into_inner);
                eprintln!("the run does not end: {} s without an access; {}", limit / 1000, after(*step));
                std::process::abort();
            }
        }
    }
}

fn after(step: Step) -> String {
    format!("the last named step was \"{step}\"")
}

/// Records that the calling thread is at a named step.
pub(crate) fn pass(step: Step) {
    SELF.with(|own| *own.step.lock().unwrap_or_else(PoisonError::into_inner) = step);
}

/// Describes the last position of the calling thread.
pub(crate) fn place() -> String {
    SELF.with(|own| after(*own.step.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Starts watching a run on the calling thread.
pub(crate) fn begin() {
    LEFT.set(ROUNDS);
    simulate_waiting(Some(wait));
    SELF.with(|own| own.since.store(now(), Relaxed));
}

/// Stops watching a run.
pub(crate) fn end() {
    simulate_waiting(None);
    SELF.with(|own| own.since.store(0, Relaxed));
}

/// Waits a round, and fails if there were too many.
fn wait() {
    let left = LEFT.get();
    // Unwinding code may continue to wait: no thread blocks it any more.
    assert!(left > 0 || std::thread::panicking(), "the run waits for ever; {}", place());
    LEFT.set(left.saturating_sub(1));
    if ROUNDS - left < SHORT {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(100));
    }
}
