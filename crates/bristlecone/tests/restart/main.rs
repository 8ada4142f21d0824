//! Restarts that keep the index over a kill: each store as a kill point, and real kills.

#[path = "../suite/common.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the suite, which has more tests")]
mod common;

mod aside;
mod descriptors;
mod devices;
mod kill_points;
mod kills;
mod operation;
mod options;
mod supervisor;
mod versions;

/// Held by each test: a process that another test starts holds locks of this one's files until it runs its own program.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
