//! The one store of the process, and the thread that removes what no key has any more.

use std::sync::OnceLock;
use std::time::Duration;

use crate::server::warn;
use crate::store::{Garbage, Store};

static STORE: OnceLock<Store> = OnceLock::new();

/// Items that are removed in a row, before the thread lets others run.
const SWEEP_ITEMS: usize = 512;
/// How long the thread waits when nothing is to be done, or nothing could be done.
const IDLE: Duration = Duration::from_millis(50);
/// Number of such waits between two attempts to restore a missing reserve.
const RESERVE_EVERY: u32 = 10;

/// Keeps the store for the life of the process. Returns it, or nothing if there is one already.
pub fn keep(store: Store) -> Option<&'static Store> {
    STORE.set(store).ok()?;
    STORE.get()
}

/// Returns whether the module has opened its pool.
pub fn is_open() -> bool {
    STORE.get().is_some()
}

/// Returns the store.
///
/// # Panics
///
/// If the module has not opened its pool: nothing of it is called before.
pub fn store() -> &'static Store {
    STORE.get().expect("the pool is opened when the module is loaded")
}

/// Starts the thread that removes what no key has.
pub fn start_sweeping() -> std::io::Result<()> {
    std::thread::Builder::new().name("bristlecone-free".to_owned()).spawn(sweep).map(drop)
}

fn sweep() {
    let (mut failing, mut idle) = (false, 0u32);
    loop {
        let Some(garbage) = store().next_garbage() else {
            std::thread::sleep(IDLE);
            idle += 1;
            if idle % RESERVE_EVERY == 0 {
                make_reserve();
            }
            continue;
        };
        match clear(garbage) {
            Ok(()) => {
                failing = false;
                // The tree gives up what was removed only at its next write, and there may be none.
                _ = store().without_sweeping(|| store().collect());
                make_reserve();
            }
            Err(error) => {
                if !failing {
                    warn(&format!("what was deleted still takes room in the pool: {error}"));
                }
                failing = true;
                store().put_back(garbage);
                std::thread::sleep(IDLE);
            }
        }
    }
}

fn make_reserve() {
    if !store().has_reserve() {
        // Without room it is tried again.
        _ = store().without_sweeping(|| store().make_reserve());
    }
}

fn clear(garbage: Garbage) -> bristlecone::Result<()> {
    while !store().sweep(garbage, SWEEP_ITEMS)?.is_gone {
        std::thread::yield_now();
    }
    Ok(())
}
