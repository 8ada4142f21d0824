//! Checks whether a mutant is on. Only part of the mutated copy: `crate::mutants::on(7)` guards each change.
//!
//! `BRISTLECONE_MUTANT` is the number of the mutant that is on, or `record`, which turns none on. Each process
//! appends the mutants that it reaches, among those that are on or recorded, to the file
//! `BRISTLECONE_MUTANTS_REACHED`, 4 bytes each, once per process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The environment was not read yet.
const UNSET: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;
const NONE: u32 = u32::MAX - 2;

static STATE: AtomicU32 = AtomicU32::new(UNSET);
static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
static REACHED: OnceLock<Option<OsString>> = OnceLock::new();

/// Returns whether this mutant is on.
#[inline(always)]
pub fn on(mutant: u32) -> bool {
    let state = STATE.load(Relaxed);
    (state == mutant || state >= RECORD) && reached(mutant)
}

#[cold]
#[inline(never)]
fn reached(mutant: u32) -> bool {
    if STATE.load(Relaxed) == UNSET {
        STATE.store(from_environment(), Relaxed);
    }
    let state = STATE.load(Relaxed);
    if state != mutant && state != RECORD {
        return false;
    }
    if !SEEN[mutant as usize].swap(true, Relaxed) {
        let path = REACHED.get_or_init(|| std::env::var_os("BRISTLECONE_MUTANTS_REACHED"));
        // Tests count open files, so the file is not kept open.
        let open = |path| OpenOptions::new().create(true).append(true).open(path).ok();
        if let Some(mut file) = path.as_ref().and_then(open) {
            let _ = file.write_all(&mutant.to_le_bytes());
        }
    }
    state == mutant
}

fn from_environment() -> u32 {
    match std::env::var("BRISTLECONE_MUTANT") {
        Ok(state) if state == "record" => RECORD,
        Ok(state) => state.parse().unwrap_or(NONE),
        Err(_) => NONE,
    }
}
