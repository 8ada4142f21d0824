//! Continuous signals while a pool is created, grows, syncs and closes. Their handlers do not restart interrupted
//! calls, and callers must not notice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::{Plant, Scratch, is_alone, small};
use bristlecone::{Domain, Pool, Tree};

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(_: libc::c_int) {
    SEEN.fetch_add(1, Relaxed);
}

/// Handles a signal without `SA_RESTART`.
fn handle(signal: libc::c_int) {
    // SAFETY: the handler does nothing but count, and the action is whole: no flags, no mask.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}

#[test]
fn a_storm_of_signals_is_not_noticed() {
    const ITEMS: u64 = 3000;
    if !is_alone("signals::a_storm_of_signals_is_not_noticed") {
        return;
    }
    [libc::SIGALRM, libc::SIGTERM, libc::SIGINT].into_iter().for_each(handle);
    // SAFETY: asks for the own number.
    let worker = unsafe { libc::syscall(libc::SYS_gettid) };
    let done = AtomicBool::new(false);
    let work = || {
        for shape in small() {
            for (directory, domain) in [
                ("/dev/shm", Domain::Process),
                ("/dev/shm", Domain::Msync),
                ("/dev/shm", Domain::Journal),
                (std::env::temp_dir().to_str().unwrap(), Domain::Process),
                (std::env::temp_dir().to_str().unwrap(), Domain::Msync),
                (std::env::temp_dir().to_str().unwrap(), Domain::Journal),
            ] {
                let scratch = Scratch::within(directory);
                // Syncing a file takes a millisecond for each fence.
                let items =
                    if directory != "/dev/shm" && domain == Domain::Msync { ITEMS / 50 } else { ITEMS };
                let options = Pool::options().max_bytes(64 << 20).domain(domain).recovery_threads(1);
                let pool = options.clone().create_new(true).open(&scratch.0).unwrap();
                let tree: Tree<u64, &[u8]> = shape.create(&pool, "t").unwrap();
                (0..items).for_each(|key| drop(tree.insert(key, &[7; 900]).unwrap()));
                drop(tree);
                pool.simulate_crash();
                let pool = options.open(&scratch.0).unwrap();
                let tree: Tree<u64, &[u8]> = shape.open(&pool, "t").unwrap();
                assert_eq!(
                    (tree.len().unwrap(), tree.check(), pool.check()),
                    (items, vec![], vec![]),
                    "{shape:?}"
                );
                drop(tree);
                pool.drop_tree("t").unwrap();
                pool.close().unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in [libc::SIGALRM, libc::SIGTERM, libc::SIGINT].into_iter().cycle() {
                if done.load(Relaxed) {
                    break;
                }
                // SAFETY: a signal with a handler, to a thread of this process that lives as long as `done` is false.
                unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), worker, signal) };
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        });
        // The signals end, whatever the result.
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Relaxed);
        worked.unwrap();
    });
    let seen = SEEN.load(Relaxed);
    println!("{seen} signals");
    assert!(seen > 1000, "{seen} signals");
}
