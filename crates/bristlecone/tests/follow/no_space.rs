//! Full shared memory while a pool is followed. The writer continues with its own memory, and an
//! operation without space changes nothing. Followers see correct data, or an error until the next
//! open.

use bristlecone::{Domain, Error, Pool, Tree};
use bristlecone_pm::failpoint;
use rustix::io::Errno;

use crate::common::{Cell, Items, Plant, Scratch, Visit, by_level, suites};

const ITEMS: u64 = 3000;

/// Makes system calls of the writer fail from one on, permanently or once.
struct Full<'a> {
    cell: Cell,
    after: usize,
    times: usize,
    seen: &'a mut Seen,
}

/// Outcome of the failures.
#[derive(Debug, Default)]
struct Seen {
    refused: u64,
    of_segment: u64,
    not_followed: u64,
    followed: u64,
}

impl Visit for Full<'_> {
    fn visit<I: Items>(self) {
        let Self { cell, after, times, seen } = self;
        let what = format!("{cell}, {times} calls from {after} on");
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        let follower = Pool::follow(&scratch.0).unwrap();
        let followed: Tree<I::K, I::V> = follower.tree("t").unwrap();
        let put = |tree: &Tree<I::K, I::V>, number| {
            tree.upsert(I::key_ref(&I::key(number)), I::value_ref(&I::value(number)))
        };
        failpoint::refuse_many(after, times, Errno::NOSPC);
        let done: Vec<bool> = (0..ITEMS).map(|number| put(&tree, number).is_ok()).collect();
        failpoint::cease();
        seen.refused += done.iter().filter(|done| !**done).count() as u64;
        seen.of_segment += u64::from(failpoint::refused() == Some("populate"));
        let wanted = |number: u64| done[number as usize].then(|| I::value(number));
        for number in 0..ITEMS {
            let key = I::key(number);
            assert_eq!(tree.get(I::key_ref(&key)).unwrap(), wanted(number), "{what}: {number}");
            match followed.get(I::key_ref(&key)) {
                Ok(found) => assert_eq!(found, wanted(number), "{what}: {number} of a follower"),
                Err(Error::NoWriter { .. }) => {
                    seen.not_followed += 1;
                    break;
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
        // Space is available again, for the pool and for the next process that opens it.
        (ITEMS..ITEMS + 100).for_each(|number| put(&tree, number).unwrap());
        drop(tree);
        pool.close().unwrap();
        let pool = cell.pool(&scratch);
        let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
        assert_eq!(tree.check(), [], "{what}");
        for number in 0..ITEMS {
            let found = followed.get(I::key_ref(&I::key(number))).unwrap();
            assert_eq!(found, wanted(number), "{what}: {number} after the next opening");
        }
        assert!(followed.range(..).map(Result::unwrap).eq(tree.iter().map(Result::unwrap)), "{what}");
        seen.followed += 1;
    }
}

#[test]
fn full_memory_ends_no_write_and_shows_nothing_wrong() {
    let mut seen = Seen::default();
    // A failed sync ends a pool of the domain `msync`, a failed write of its files one with a journal: `no_space` and
    // `failing_calls` test that.
    let goes_on = |cell: &Cell| !matches!(cell.domain, Domain::Msync | Domain::Journal);
    for cell in suites::FOLLOW.sampled_of_each_design_where(goes_on) {
        for after in 0..by_level(4, 12, 40) {
            for times in [1, usize::MAX] {
                cell.codec.visit(Full { cell, after, times, seen: &mut seen });
            }
        }
    }
    println!("{seen:?}");
    assert!(seen.of_segment > 0 && seen.not_followed > 0 && seen.followed > 0, "{seen:?}");
}
