//! Durability of one commit, tickets, durable reads, and pools that get a journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bristlecone_random::Generator as Random;

use super::{Scratch, items, open, options};
use crate::journal::simulated::Disk;
use crate::{Design, Domain, Durability, Error, Pool, Ticket};

/// Cuts the power immediately, and opens the pool again.
fn after_failure(scratch: &Scratch, disk: &Disk, pool: Pool) -> Pool {
    pool.simulate_crash();
    scratch.scramble();
    let image = disk.only_durable();
    open(scratch, &image, Durability::Commit).unwrap()
}

#[test]
fn a_commit_may_have_a_durability_of_its_own() {
    for of_pool in [Durability::Commit, Durability::Memory, Durability::Interval(Duration::from_secs(3600))] {
        for own in [Durability::Commit, Durability::Memory, Durability::Interval(Duration::ZERO)] {
            for is_batch in [false, true] {
                let (scratch, disk) = (Scratch::new(), Disk::new());
                let pool = open(&scratch, &disk, of_pool).unwrap();
                let tree = pool.tree::<u64, u64>("t").unwrap();
                pool.sync().unwrap();
                let before = disk.events();
                if is_batch {
                    let mut batch = pool.batch();
                    batch.insert(&tree, 1, 2).durability(own);
                    batch.commit().unwrap();
                } else {
                    let insert = |tx: &crate::Transaction| {
                        tx.durability(own);
                        tx.insert(&tree, 1, 2)
                    };
                    pool.transaction(insert).unwrap();
                }
                let lasts = match own {
                    Durability::Commit => true,
                    Durability::Memory => {
                        assert_eq!(disk.events(), before, "{of_pool:?}");
                        false
                    }
                    _ => {
                        // The flusher has its own time.
                        let mut waited = 0;
                        while disk.events() < before + 2 {
                            std::thread::sleep(Duration::from_millis(1));
                            waited += 1;
                            assert!(waited < 60_000, "no sync within an interval of 0");
                        }
                        true
                    }
                };
                drop(tree);
                let pool = after_failure(&scratch, &disk, pool);
                let found = pool.tree::<u64, u64>("t").unwrap().get(1).unwrap();
                assert_eq!(found, lasts.then_some(2), "{of_pool:?}, {own:?}, batch: {is_batch}");
            }
        }
    }
}

#[test]
fn a_ticket_tells_when_its_writes_are_durable() {
    for durability in [Durability::Commit, Durability::Memory] {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, durability).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        pool.sync().unwrap();
        let before = disk.events();
        let (_, nothing) = pool.with_ticket(|| tree.get(1)).unwrap();
        assert!(nothing.is_durable().unwrap());
        let (old, first) = pool.with_ticket(|| tree.insert(1, 10)).unwrap();
        let pairs: Vec<_> = (2..50).map(|key| (key, 10 * key)).collect();
        let (_, many) = pool.with_ticket(|| Ok(tree.upsert_many(&pairs)?)).unwrap();
        let (_, batch) = pool
            .with_ticket(|| {
                let mut batch = pool.batch();
                batch.insert(&tree, 50, 500);
                batch.commit()
            })
            .unwrap();
        assert_eq!((old, disk.events()), (None, before), "a write waited");
        assert!(!first.is_durable().unwrap() && !many.is_durable().unwrap() && !batch.is_durable().unwrap());
        many.wait().unwrap();
        assert!(first.is_durable().unwrap() && many.is_durable().unwrap());
        batch.wait().unwrap();
        // Of an outer closure, and of a failed one.
        let (inner, outer) = pool.with_ticket(|| Ok(pool.with_ticket(|| tree.insert(51, 510))?.1)).unwrap();
        assert!(!inner.is_durable().unwrap() && !outer.is_durable().unwrap());
        outer.wait().unwrap();
        assert!(inner.is_durable().unwrap());
        let failed = pool.with_ticket(|| tree.insert(52, 520).and(Err::<(), _>(Error::Conflict)));
        assert!(matches!(failed, Err(Error::Conflict)));
        pool.sync().unwrap();
        drop(tree);
        let pool = after_failure(&scratch, &disk, pool);
        let found = items(&pool.tree("t").unwrap());
        assert_eq!(found, (1..53).map(|key| (key, 10 * key)).collect());
    }
}

#[test]
fn a_ticket_outlives_its_pool() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let (_, closed) = pool.with_ticket(|| tree.insert(1, 2)).unwrap();
    drop(tree);
    pool.close().unwrap();
    assert!(closed.is_durable().unwrap());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let (_, left) = pool.with_ticket(|| tree.insert(2, 3)).unwrap();
    drop(tree);
    pool.simulate_crash();
    // The next process has the journal now.
    let before = disk.events();
    assert!(matches!(left.wait(), Err(Error::DurabilityLost)));
    assert_eq!(disk.events(), before);
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().get(2).unwrap(), Some(3));
}

/// Counts how often a task was woken.
struct Task(AtomicUsize, std::thread::Thread);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        self.1.unpark();
    }
}

fn await_it(mut ticket: Ticket) -> crate::Result<()> {
    let task = Arc::new(Task(AtomicUsize::new(0), std::thread::current()));
    let waker = Waker::from(Arc::clone(&task));
    loop {
        match std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => {
                let begun = Instant::now();
                while task.0.swap(0, SeqCst) == 0 {
                    assert!(begun.elapsed() < Duration::from_secs(60), "never woken");
                    std::thread::park_timeout(Duration::from_secs(1));
                }
            }
        }
    }
}

#[test]
fn a_ticket_can_be_awaited() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Memory).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (pool, tree) = (&pool, &tree);
            scope.spawn(move || {
                for key in 0..50 {
                    let (_, ticket) = pool.with_ticket(|| tree.insert(100 * thread + key, key)).unwrap();
                    await_it(ticket.clone()).unwrap();
                    assert!(ticket.is_durable().unwrap());
                }
            });
        }
    });
    let (_, lost) = pool.with_ticket(|| tree.insert(1000, 1)).unwrap();
    disk.turn_off_at(disk.events());
    assert!(matches!(await_it(lost), Err(Error::DurabilityLost)));
    drop(tree);
    let pool = after_failure(&scratch, &disk, pool);
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert_eq!((tree.len().unwrap(), tree.get(349).unwrap()), (200, Some(49)));
}

#[test]
fn durable_reads_return_only_what_is_on_disk() {
    for &design in Design::ALL {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = options(&disk, Durability::Memory).durable_reads(true).open(&scratch.0).unwrap();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        pool.sync().unwrap();
        let mut key = 0;
        // Each read is one sync of the write before it, and no more where nothing was written.
        let mut reads = |what: &str, read: &mut dyn FnMut(u64)| {
            key += 1;
            tree.upsert(key, key).unwrap();
            let (before, synced) = (disk.events(), disk.syncs().len());
            read(key);
            assert!(
                disk.events() > before && disk.syncs().len() == synced + 1,
                "{design}: {what} did not sync once"
            );
            let before = disk.events();
            read(key);
            // A refused write has an entry that does not count.
            let is_write = what == "a refused write";
            assert!(is_write || disk.events() == before, "{design}: {what} without changes");
        };
        reads("get", &mut |key| assert_eq!(tree.get(key).unwrap(), Some(key)));
        reads("absence", &mut |key| assert_eq!(tree.get(key + 1000).unwrap(), None));
        reads("get_with", &mut |key| assert_eq!(tree.get_with(key, |value| value).unwrap(), Some(key)));
        reads("get_many", &mut |key| {
            let mut found = Vec::new();
            tree.get_many(&[key, key + 1], &mut found).unwrap();
            assert_eq!(found, [Some(key), None]);
        });
        reads("len", &mut |key| assert_eq!(tree.len().unwrap(), key));
        reads("range", &mut |key| assert_eq!(tree.range(..).last().unwrap().unwrap(), (key, key)));
        reads("backwards", &mut |key| assert_eq!(tree.range(..).next_back().unwrap().unwrap(), (key, key)));
        reads("last", &mut |key| assert_eq!(tree.last_key_value().unwrap(), Some((key, key))));
        reads("a refused write", &mut |key| {
            assert!(tree.try_insert(key, 7).is_err());
        });
        reads("a failed condition", &mut |key| {
            let mut batch = pool.batch();
            batch.expect(&tree, key, None).insert(&tree, key, 9);
            assert!(matches!(batch.commit(), Err(Error::Conflict)));
        });
        reads("a transaction", &mut |key| {
            assert_eq!(pool.transaction(|tx| tx.get(&tree, key)).unwrap(), Some(key));
        });
        reads("a snapshot", &mut |key| {
            assert_eq!(pool.snapshot().unwrap().tree(&tree).get(key).unwrap(), Some(key));
        });
        // A read that cannot become durable is an error, and stays one.
        tree.upsert(999, 1).unwrap();
        disk.turn_off_at(disk.events());
        for _ in 0..2 {
            assert!(matches!(tree.get(999), Err(Error::DurabilityLost)), "{design}");
            assert!(matches!(tree.range(..).next(), Some(Err(Error::DurabilityLost))), "{design}");
        }
    }
}

#[test]
fn durable_reads_beside_writers_do_not_hang() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = options(&disk, Durability::Commit).durable_reads(true).open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (pool, tree) = (&pool, &tree);
            scope.spawn(move || {
                for count in 0..200 {
                    let _view = (count % 7 == 0).then(|| pool.snapshot().unwrap());
                    tree.upsert(thread, count).unwrap();
                    let _ = tree.get((thread + 1) % 4).unwrap();
                    let add = |tx: &crate::Transaction| {
                        let sum = tx.get(tree, 100)?.unwrap_or(0);
                        tx.insert(tree, 100, sum + 1)
                    };
                    pool.transaction(add).unwrap();
                }
            });
        }
    });
    assert_eq!(tree.get(100).unwrap(), Some(800));
}

#[test]
fn a_pool_of_another_domain_gets_a_journal() {
    for domain in [Domain::Process, Domain::Msync] {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let plain = Pool::options().max_bytes(32 << 20).chunk_bytes(4096).domain(domain);
        let pool = plain.clone().create_new(true).open(&scratch.0).unwrap();
        for &design in Design::ALL {
            let tree = pool.tree_options(&design.to_string()).design(design).create::<&str, &str>().unwrap();
            for key in 0..300 {
                tree.upsert(&format!("{key}"), &design.to_string()).unwrap();
            }
        }
        pool.close().unwrap();
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        assert_eq!(pool.info().domain, Domain::Journal);
        pool.tree::<&str, &str>("nbtree").unwrap().upsert("new", "item").unwrap();
        pool.simulate_crash();
        scratch.scramble();
        let pool = open(&scratch, &disk.after_failure(&mut Random::new(1)), Durability::Commit).unwrap();
        for &design in Design::ALL {
            let tree = pool.tree::<&str, &str>(&design.to_string()).unwrap();
            let more = u64::from(design.name() == "nbtree");
            assert_eq!(
                (tree.len().unwrap(), tree.get("299").unwrap()),
                (300 + more, Some(design.to_string()))
            );
        }
        drop(pool);
        // It keeps it.
        assert!(matches!(plain.open(&scratch.0), Err(Error::Invalid { .. })));
    }
}

#[test]
fn a_journal_of_which_the_superblock_does_not_know_yet_is_made_again() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool =
        Pool::options().max_bytes(32 << 20).chunk_bytes(4096).create_new(true).open(&scratch.0).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    pool.close().unwrap();
    let before = std::fs::read(&scratch.0).unwrap();
    for round in 0..3 {
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        assert_eq!(pool.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
        if round < 2 {
            // A kill just before the superblock said so.
            pool.simulate_crash();
            std::fs::write(&scratch.0, &before).unwrap();
        } else {
            pool.close().unwrap();
        }
    }
    // From then on, the journal has changes that an old copy of the pool lacks.
    std::fs::write(&scratch.0, &before).unwrap();
    assert!(matches!(open(&scratch, &disk, Durability::Commit), Err(Error::Invalid { .. })));
}

#[test]
fn a_power_failure_at_each_step_of_getting_a_journal_loses_nothing() {
    let (mut step, mut was_done) = (0, 0);
    loop {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let plain = Pool::options().max_bytes(32 << 20).chunk_bytes(4096);
        let pool = plain.clone().create_new(true).open(&scratch.0).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        (0..100).for_each(|key| tree.upsert(key, key).unwrap());
        drop(tree);
        pool.close().unwrap();
        disk.turn_off_at(step);
        let done = open(&scratch, &disk, Durability::Commit);
        let is_done = done.is_ok();
        drop(done.map(Pool::simulate_crash));
        // The old domain has durable pages: they are as they were.
        let has_journal = Pool::options().read_only(true).open(&scratch.0).is_err();
        if has_journal {
            scratch.scramble_unless_closed();
        }
        was_done += usize::from(has_journal);
        let image = disk.after_failure(&mut Random::new(step as u64));
        let pool = open(&scratch, &image, Durability::Commit).unwrap();
        let found = items(&pool.tree("t").unwrap());
        assert_eq!(found, (0..100).map(|key| (key, key)).collect(), "off at event {step}");
        assert_eq!(pool.info().domain, Domain::Journal);
        if is_done {
            break;
        }
        step += 1;
    }
    assert!(step > 20 && was_done == 1, "{step} events, {was_done} ended with a journal");
}
