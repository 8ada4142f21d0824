//! Simulated cores: small structures whose times and counts are known.

use std::sync::Mutex;

use bristlecone_device::Layout;
use bristlecone_device::cores::{CoreTally, Cores, Machine, Outcome, SimulatorHeap};
use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed, wait};
use bristlecone_pm::{Domain, Geometry, Medium, Region};

#[global_allocator]
static HEAP: SimulatorHeap = SimulatorHeap::new();

const KIND: u8 = 1;
const ROUNDS: u64 = 1000;
/// Operations take longer than a core keeps a contended line.
const MACHINE: Machine = Machine { operation_ns: 100.0, ..Machine::ICELAKE };

/// A word with a line of its own.
#[repr(align(128))]
struct Padded(AtomicU64);

fn padded() -> Box<Padded> {
    Box::new(Padded(AtomicU64::new(0)))
}

fn geometry() -> Geometry {
    Geometry { chunk_bytes: 4096, chunks_max: 64, trees_max: 2 }
}

fn cores(machine: &Machine, threads: usize) -> Result<(Cores, Region), String> {
    let region = Region::memory(geometry().max_bytes()).unwrap();
    let layout = Layout { geometry: geometry(), part_of: |_| None };
    let cores = Cores::new(machine, threads, (&region, layout), Domain::Adr, false)?;
    Ok((cores, region))
}

/// Runs an operation of each thread many times.
fn repeat(cores: &mut Cores, operation: impl Fn(usize)) -> Outcome {
    cores.run(|simulated, thread| {
        (0..ROUNDS).for_each(|_| simulated.operation(KIND, || operation(thread)));
    });
    cores.take(4)
}

fn tally(outcome: &Outcome) -> CoreTally {
    outcome.tallies[KIND]
}

#[test]
fn loads_of_a_shared_line_move_nothing_and_stores_move_it_each_time() {
    let (mut cores, _region) = cores(&MACHINE, 4).unwrap();
    let (read, written) = (padded(), padded());
    repeat(&mut cores, |_| _ = read.0.load(Relaxed));
    let reads = repeat(&mut cores, |_| _ = read.0.load(Relaxed));
    assert_eq!((tally(&reads).transfers, tally(&reads).invalidations), (0, 0));
    assert_eq!(tally(&reads).steps, 4 * ROUNDS);
    let writes = repeat(&mut cores, |_| _ = written.0.fetch_add(1, Relaxed));
    assert_eq!(written.0.load(Relaxed), 4 * ROUNDS);
    assert!(tally(&writes).transfers > 4 * ROUNDS * 9 / 10, "{:?}", tally(&writes));
    assert_eq!(writes.hot[0].moved, tally(&writes).transfers + tally(&writes).invalidations);
    assert_eq!(writes.hot[0].place, "DRAM");
    // The line is at one core at a time.
    let least = 4.0 * ROUNDS as f64 * 0.9 * Machine::ICELAKE.transfer_ns * 1e-9;
    assert!(writes.seconds > least && reads.seconds < writes.seconds / 2.0);
}

#[test]
fn words_of_one_line_are_contended_and_of_two_are_not() {
    let (mut cores, _region) = cores(&MACHINE, 2).unwrap();
    let same: Box<[AtomicU64]> = Box::new([const { AtomicU64::new(0) }; 2]);
    let apart = [padded(), padded()];
    let false_sharing = repeat(&mut cores, |thread| same[thread].store(1, Relaxed));
    repeat(&mut cores, |thread| apart[thread].0.store(1, Relaxed));
    let alone = repeat(&mut cores, |thread| apart[thread].0.store(1, Relaxed));
    assert!(tally(&false_sharing).shared_writes > ROUNDS, "{:?}", tally(&false_sharing));
    assert_eq!(tally(&alone).shared_writes, 0);
}

#[test]
fn threads_that_wait_for_a_lock_spend_virtual_time() {
    let lock = Box::new(Mutex::new(0_u64));
    let work = |threads: usize| {
        let (mut cores, _region) = cores(&MACHINE, threads).unwrap();
        let word = padded();
        repeat(&mut cores, |_| {
            let mut held = wait::lock(&lock);
            (0..20).for_each(|_| _ = word.0.load(Relaxed));
            *held += 1;
        })
    };
    let (one, eight) = (work(1), work(8));
    assert_eq!(*wait::lock(&lock), 9 * ROUNDS);
    assert_eq!(tally(&one).waits, 0);
    assert!(tally(&eight).waits > 0 && tally(&eight).wait_ps > 0);
    // The work is done by one thread at a time.
    assert!(eight.seconds > 2.0 * one.seconds, "{} {}", eight.seconds, one.seconds);
}

#[test]
fn another_socket_is_farther() {
    let far = Machine { cores: 1, ..MACHINE };
    let ping = |machine: &Machine| {
        let (mut cores, _region) = cores(machine, 2).unwrap();
        let word = padded();
        repeat(&mut cores, |_| _ = word.0.fetch_add(1, Relaxed))
    };
    let (near, far) = (ping(&MACHINE), ping(&far));
    assert_eq!(tally(&near).remote, 0);
    assert!(tally(&far).remote > ROUNDS && far.seconds > 1.3 * near.seconds);
}

#[test]
fn flushed_lines_reach_the_device_and_a_fence_waits_for_them() {
    let (mut cores, region) = cores(&MACHINE, 1).unwrap();
    let medium = cores.medium();
    let start = region.base().addr() + geometry().header_bytes() as usize;
    let word = std::ptr::with_exposed_provenance::<AtomicU64>(start);
    let _ = region.base().expose_provenance();
    // SAFETY: memory of the region, which is mapped and outlives the reference.
    let word: &std::sync::atomic::AtomicU64 = unsafe { &*word.cast() };
    let stored = repeat(&mut cores, |_| medium.store(word, 7, Relaxed));
    assert_eq!((tally(&stored).flushes, tally(&stored).device_writes), (0, 0));
    let flushed = repeat(&mut cores, |_| {
        medium.store(word, 7, Relaxed);
        medium.flush_lines(std::ptr::from_ref(word).cast(), 8, "test");
        medium.drain("test");
    });
    let counts = tally(&flushed);
    assert_eq!((counts.flushes, counts.fences, counts.device_writes), (ROUNDS, ROUNDS, ROUNDS));
    assert!(flushed.seconds > stored.seconds + ROUNDS as f64 * 50e-9);
}

#[test]
fn a_run_repeats_exactly() {
    let run = || {
        let (mut cores, _region) = cores(&Machine::CXL, 7).unwrap();
        let words: Vec<_> = (0..5).map(|_| padded()).collect();
        let outcome = repeat(&mut cores, |thread| {
            words[thread % 5].0.fetch_add(1, Relaxed);
            _ = words[(thread + 1) % 5].0.load(Relaxed);
        });
        (outcome.seconds, outcome.tallies, outcome.hot)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_panic_of_a_thread_ends_the_run() {
    let panicked = std::panic::catch_unwind(|| {
        let (mut cores, _region) = cores(&MACHINE, 3).unwrap();
        let word = padded();
        repeat(&mut cores, |thread| {
            assert!(word.0.fetch_add(1, Relaxed) < 100 || thread != 1, "on purpose");
        });
    });
    assert!(panicked.is_err());
    // The next run is unaffected.
    let (mut cores, _region) = cores(&MACHINE, 1).unwrap();
    assert_eq!(tally(&repeat(&mut cores, |_| ())).operations, ROUNDS);
}

#[test]
fn more_threads_than_the_directory_or_the_machine_holds_are_refused_in_one_line() {
    for (machine, threads, said) in [
        (Machine::ICELAKE, 129, "129 threads: the directory holds 1 to 128"),
        (Machine::ICELAKE, 0, "0 threads"),
        (Machine::ICELAKE, 97, "97 threads: icelake2s-optane runs 96"),
        (Machine { dram_ns: -1.0, ..Machine::ICELAKE }, 1, "dram_ns = -1"),
    ] {
        let error = cores(&machine, threads).unwrap_err();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}

/// Changes a word by compare-and-swap, as often as needed; returns the number of attempts.
fn increment(word: &AtomicU64) -> u64 {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let old = word.load(Relaxed);
        if word.compare_exchange(old, old + 1, Relaxed, Relaxed).is_ok() {
            return attempts;
        }
    }
}

/// A thread compares the value that the line has when it arrives, and keeps the line until the next request arrives.
/// Otherwise most attempts would fail as soon as several threads wait for the line.
#[test]
fn attempts_to_swap_a_contended_word_do_not_grow_with_the_threads() {
    for threads in [2, 8, 24, 48] {
        let (mut cores, _region) = cores(&MACHINE, threads).unwrap();
        let word = padded();
        let attempts = std::cell::Cell::new(0);
        let outcome = repeat(&mut cores, |_| attempts.set(attempts.get() + increment(&word.0)));
        let operations = threads as u64 * ROUNDS;
        assert_eq!(word.0.load(Relaxed), operations);
        let each = attempts.get() as f64 / operations as f64;
        assert!(each < 2.5, "{threads} threads: {each:.2} attempts");
        let moves = (tally(&outcome).transfers + tally(&outcome).invalidations) as f64 / operations as f64;
        assert!((0.5..4.0).contains(&moves), "{threads} threads: {moves:.2} moves");
    }
}
