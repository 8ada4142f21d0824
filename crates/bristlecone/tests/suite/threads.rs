//! Threads that cannot be had: what they were to do is done by those that are there.

use std::process::Command;

use crate::common::{SHAPES, Scratch};

const CHILD: &str = "BRISTLECONE_THREADS_CHILD";
const KEYS: u64 = 30_000;

/// In a process whose threads would have stacks that no memory has room for.
#[test]
fn without_threads_everything_is_done_by_the_caller() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "threads::without_threads_everything_is_done_by_the_caller"]);
        let child = child.env(CHILD, "1").env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        let ran = child.args(["--test-threads=1"]).output().unwrap();
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(ran.status.success() && said[0].contains("1 passed"), "{}{}", said[0], said[1]);
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "a thread with an endless stack");
    for shape in SHAPES {
        let scratch = Scratch::new();
        let open = || scratch.options().recovery_threads(4).open(&scratch.0).unwrap();
        let pool = open();
        pool.prefault(8 << 20).unwrap();
        let tree = shape.tree(&pool, "t").create::<u64, u64>().unwrap();
        (0..KEYS).for_each(|key| tree.upsert(key, key).unwrap());
        assert_eq!((tree.len(), tree.check()), (KEYS, vec![]));
        drop(tree);
        pool.simulate_crash();
        let pool = open();
        let tree = shape.tree(&pool, "t").open::<u64, u64>().unwrap();
        assert_eq!((tree.len(), tree.check()), (KEYS, vec![]));
    }
}
