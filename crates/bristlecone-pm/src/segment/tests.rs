use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

use super::place::path_of;
use super::*;

/// A pool's file that is deleted on drop, together with the segment.
struct Pool {
    path: PathBuf,
    uuid: [u64; 2],
}

impl Pool {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let uuid = [u64::from(std::process::id()), NEXT.fetch_add(1, Relaxed)];
        let path = std::env::temp_dir().join(format!("bristlecone-segment-{}-{}", uuid[0], uuid[1]));
        std::fs::write(&path, []).unwrap();
        Self { path, uuid }
    }

    fn open(&self, seal: u64, read_only: bool) -> Option<Arc<Segment>> {
        let identity = Identity {
            uuid: self.uuid,
            seal,
            was_clean: true,
            opening: 9,
            layout: 7,
            pool: Some(&self.path),
        };
        Segment::open(&identity, KeepIndex::Always, read_only)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = (std::fs::remove_file(&self.path), std::fs::remove_file(path_of(self.uuid)));
    }
}

/// An extent of words.
struct Words(Extent);

impl Words {
    const BYTES: usize = 200 << 10;

    /// Returns an extent filled with words specific to the tree.
    fn new(memory: &Memory, tree: u64) -> Self {
        let extent = memory.extent(1 << 30).unwrap();
        let (some, all) = (extent.extend(0, 8).unwrap(), Self::BYTES);
        assert!((8..=2 << 20).contains(&some) && extent.extend(some, all).unwrap() >= all);
        let words = Self(extent);
        assert!(words.all().iter().all(|word| *word == 0), "an extent begins as zeros");
        words.all().iter_mut().zip(1..).for_each(|(word, at)| *word = tree << 32 | at);
        words
    }

    #[expect(clippy::mut_from_ref, reason = "each test has its extents for itself")]
    fn all(&self) -> &mut [u64] {
        // SAFETY: this many bytes are usable, and no other thread has them.
        unsafe { std::slice::from_raw_parts_mut(self.0.base().cast(), Self::BYTES / 8) }
    }

    fn is_of(&self, tree: u64) -> bool {
        self.all().iter().zip(1..).all(|(word, at)| *word == tree << 32 | at)
    }

    fn save(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push_all([3, 4].into_iter());
        manifest.push_extent(&self.0)
    }

    fn resume(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        assert_eq!(manifest.read_all()?, [3, 4]);
        manifest.read_extent(1 << 30, Self::BYTES).map(Self)
    }
}

/// Another process that opens a pool removes unused segments, and leaves one alone that is being created.
#[test]
fn a_new_segment_survives_sweeps() {
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                sweep::sweep();
            }
        });
        let lost = (0..500).filter(|_| {
            let pool = Pool::new();
            let segment = pool.open(0, false);
            segment.is_none() || !path_of(pool.uuid).exists()
        });
        let lost = lost.count();
        over.store(true, Relaxed);
        assert_eq!(lost, 0, "segments of 500");
    });
}

/// A sweep takes no lock of a segment whose pool exists: a process that opens the pool meanwhile would go without.
#[test]
fn a_segment_is_resumed_beside_sweeps() {
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    sweep::sweep();
                }
            });
        }
        let pool = Pool::new();
        let resumed = (0..500).map(|_| {
            let seal = left(&pool);
            let segment = pool.open(seal, false);
            let found = segment.is_some_and(|segment| segment.was_found());
            let _ = std::fs::remove_file(path_of(pool.uuid));
            found
        });
        let lost = resumed.filter(|found| !found).count();
        over.store(true, Relaxed);
        assert_eq!(lost, 0, "of 500 openings");
    });
}

/// Saves the state of two trees; returns the number of the seal.
fn left(pool: &Pool) -> u64 {
    let segment = pool.open(0, false).unwrap();
    let memory = Memory::of(Some(&segment));
    for tree in [2, 5] {
        let words = Words::new(&memory, u64::from(tree));
        assert!(!words.0.is_private());
        segment.save_tree(tree, |manifest| words.save(manifest));
    }
    segment.seal(&[2, 5, 9])
}

#[test]
fn what_is_sealed_is_found_once_and_by_its_number() {
    let pool = Pool::new();
    let seal = left(&pool);
    assert_ne!(seal, 0);
    let segment = pool.open(seal, false).unwrap();
    assert!(segment.was_found() && segment.resume_tree(3, Words::resume).is_none());
    let words = segment.resume_tree(5, Words::resume).unwrap();
    assert!(words.is_of(5) && segment.resume_tree(5, Words::resume).is_none());
    // An extent in use is not handed out, and a freed extent is zero when reused.
    let other = Words::new(&Memory::of(Some(&segment)), 8);
    drop(words);
    let again = Words::new(&Memory::of(Some(&segment)), 9);
    assert!(other.is_of(8) && again.is_of(9));
    assert!(segment.resume_tree(2, Words::resume).unwrap().is_of(2));
    drop((other, again, segment));
    assert!(!path_of(pool.uuid).exists(), "it was not sealed again");
    assert!(!pool.open(seal, false).unwrap().was_found());
}

#[test]
fn another_number_finds_nothing() {
    let pool = Pool::new();
    for (seal, is_found) in [(0, false), (1, false), (2, true)] {
        let number = left(&pool);
        let asked = if seal == 2 { number } else { seal };
        assert_eq!(pool.open(asked, false).is_some_and(|segment| segment.was_found()), is_found);
    }
}

#[test]
fn readers_have_it_side_by_side_and_what_they_store_for_themselves() {
    let pool = Pool::new();
    let seal = left(&pool);
    let readers = [pool.open(seal, true).unwrap(), pool.open(seal, true).unwrap()];
    for segment in &readers {
        let [one, other] = [0; 2].map(|_| segment.resume_tree(2, Words::resume).unwrap());
        one.all()[0] = 7;
        assert!(other.is_of(2) && !one.is_of(2));
        assert!(Words::new(&Memory::of(Some(segment)), 1).0.is_private());
        segment.save_tree(2, |_| unreachable!("a reader leaves nothing"));
        assert_eq!(segment.seal(&[2]), 0);
    }
    assert!(pool.open(seal + 1, true).is_none());
    drop(readers);
    assert!(pool.open(seal, false).unwrap().resume_tree(2, Words::resume).unwrap().is_of(2));
}

#[test]
fn trees_that_are_gone_or_say_nothing_leave_nothing() {
    let pool = Pool::new();
    let segment = pool.open(0, false).unwrap();
    let memory = Memory::of(Some(&segment));
    let words = Words::new(&memory, 2);
    segment.save_tree(2, |manifest| words.save(manifest).and(None));
    segment.save_tree(3, |manifest| {
        manifest.push(1);
        Some(())
    });
    segment.save_tree(4, |manifest| Words::new(&memory, 4).save(manifest));
    segment.forget(4);
    assert_eq!(segment.seal(&[2, 4]), 0, "tree 3 is gone");
    segment.save_tree(3, |manifest| Words::new(&memory, 3).save(manifest));
    let seal = segment.seal(&[3]);
    drop((words, memory, segment));
    let segment = pool.open(seal, false).unwrap();
    // A manifest that is not read to its end counts as invalid.
    assert!(segment.resume_tree(3, |manifest| manifest.read_all().map(drop)).is_none());
    assert!(segment.resume_tree(2, |_| Some(())).is_none());
}

#[test]
fn calls_that_are_refused_leave_memory_of_the_process_or_nothing() {
    for with in [Errno::NOSPC, Errno::NOMEM, Errno::MFILE] {
        for after in 0.. {
            let pool = Pool::new();
            let seal = left(&pool);
            failpoint::refuse(after, with);
            let segment = pool.open(seal, false);
            let memory = Memory::of(segment.as_ref());
            let found = segment.as_ref().and_then(|segment| segment.resume_tree(2, Words::resume));
            assert!(found.is_none_or(|words| words.is_of(2)), "{with:?} {after}");
            // An extent is always provided, and stores its contents.
            let words = Words::new(&memory, 6);
            let more = words.0.extend(4 << 20, 9 << 20).unwrap();
            assert!(more >= 9 << 20 && words.is_of(6), "{with:?} {after}");
            let seal = segment.as_ref().map_or(0, |segment| {
                segment.save_tree(6, |manifest| words.save(manifest));
                segment.seal(&[5, 6])
            });
            let refused = failpoint::refused();
            failpoint::cease();
            drop((words, memory, segment));
            let segment = pool.open(seal, false).unwrap();
            assert_eq!(segment.was_found(), seal != 0, "{with:?} {after}: {refused:?}");
            for (tree, of) in [(5, 5), (6, 6)] {
                let words = segment.resume_tree(tree, Words::resume);
                assert!(words.is_none_or(|words| words.is_of(of)), "{with:?} {after}: {refused:?}");
            }
            if refused.is_none() {
                break;
            }
        }
    }
}

#[test]
fn notes_that_make_no_sense_are_refused() {
    let kept =
        |extents: &[u32]| SavedTree { extents: extents.to_vec(), words: vec![1, 2], sums: Some(vec![3]) };
    let trees = [(1, kept(&[1, 2])), (4, kept(&[]))].into_iter().collect();
    let words = saved::write(4, &trees);
    assert!(saved::read(&words).is_some_and(|(begun, trees)| begun == 4 && trees.len() == 2));
    for at in 0..words.len() {
        assert!(saved::read(&words[..at]).is_none(), "{at} words");
        for wrong in [0, 1, 3, 4, u64::MAX] {
            let mut other = words.clone();
            other[at] = wrong;
            // Decoded manifest name each extent at most once, and only extents that were begun.
            let Some((begun, trees)) = saved::read(&other) else { continue };
            let mut extents: Vec<u32> = trees.values().flat_map(|kept| kept.extents.clone()).collect();
            let all = extents.len();
            extents.sort_unstable();
            extents.dedup();
            assert!(extents.len() == all && extents.iter().all(|extent| (1..begun).contains(extent)));
        }
    }
}

/// The first words of a header of format 2.
const HEADER_OF_FORMAT_2: [u8; 32] = *b"brstlseg\x02\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";

#[test]
fn a_segment_of_an_earlier_format_is_replaced() {
    let pool = Pool::new();
    let [earlier] = place::earlier_paths(pool.uuid).collect::<Vec<_>>().try_into().unwrap();
    std::fs::write(&earlier, HEADER_OF_FORMAT_2).unwrap();
    std::fs::set_permissions(&earlier, Permissions::from_mode(0o600)).unwrap();
    // One that another process uses stays.
    let other = File::open(&earlier).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(!pool.open(7, false).unwrap().was_found() && earlier.exists());
    drop(other);
    assert!(!pool.open(7, false).unwrap().was_found() && !earlier.exists());
    // The same bytes under the present name.
    std::fs::write(path_of(pool.uuid), HEADER_OF_FORMAT_2).unwrap();
    std::fs::set_permissions(path_of(pool.uuid), Permissions::from_mode(0o600)).unwrap();
    assert!(!pool.open(7, false).unwrap().was_found());
}

#[test]
fn a_killed_process_leaves_the_trees_that_it_had_open() {
    let pool = Pool::new();
    let identity = |seal, was_clean, opening| Identity {
        uuid: pool.uuid,
        seal,
        was_clean,
        opening,
        layout: 7,
        pool: Some(&pool.path),
    };
    let open = |identity: Identity<'_>, keep| Segment::open(&identity, keep, false).unwrap();
    let leave = |opening| {
        let segment = open(identity(0, true, opening), KeepIndex::Always);
        let words = Words::new(&Memory::of(Some(&segment)), 5);
        segment.share_tree(5, |manifest| words.save(manifest));
        // As a kill does: neither file nor page changes, but the lock is released.
        flock(&segment.file, FlockOperation::Unlock).unwrap();
        owner::give_back(&segment.file, Lock::Writer);
        std::mem::forget((words, segment));
    };
    leave(3);
    // Another opening was the last one; or the pool was closed since; or it is not to be used.
    for (found, keep) in [
        (identity(4, false, 9), KeepIndex::Always),
        (identity(3, true, 9), KeepIndex::Always),
        (identity(3, false, 9), KeepIndex::Auto),
    ] {
        assert!(!open(found, keep).was_found());
        leave(3);
    }
    let segment = open(identity(3, false, 9), KeepIndex::AfterKill);
    assert!(segment.was_found() && segment.recover_tree(4, Words::resume).is_none());
    // Kept for the next opening, until the tree is opened.
    flock(&segment.file, FlockOperation::Unlock).unwrap();
    owner::give_back(&segment.file, Lock::Writer);
    std::mem::forget(segment);
    let segment = open(identity(9, false, 10), KeepIndex::AfterKill);
    let words = segment.recover_tree(5, Words::resume).unwrap();
    assert!(words.is_of(5) && segment.recover_tree(5, Words::resume).is_none());
    let other = Words::new(&Memory::of(Some(&segment)), 8);
    assert!(words.is_of(5) && other.is_of(8), "its extent is in use");
}
