//! Cases that no sequence of operations covers: trees of earlier versions, damaged ones, and the exact
//! bytes on the medium.

use std::ops::Bound;
use std::path::PathBuf;

use bristlecone_pm::{CreateOptions, Native, Persist, TreeSpec};

use super::above::Reserve;
use super::layout::{LOGS, State};
use super::log::Record;
use super::read::Path;
use super::*;
use crate::index::parts::codec::Inline;
use crate::index::testing::{WordTree, of_words};
use crate::index::{Batch, Inspect, Open, Read, Scan, WriteMode};

type Tree = WoTree<Inline, Native>;

const OPTIONS: WoTreeOptions = WoTreeOptions { node_lines: 2, log_leaves: 0 };
/// Number of slots of a leaf of two lines, and of entries of an inner node.
const NODE: u64 = 6;

fn value_of(tree: &Tree, key: u64) -> Option<u64> {
    let mut found = None;
    Read::<_, Inline>::get(tree, key, &mut |value| found = Some(value)).unwrap();
    found
}

struct Scratch(PathBuf);

impl Scratch {
    fn pool(name: &str) -> (Self, Arc<PoolFile<Native>>) {
        let path = PathBuf::from(format!("/dev/shm/bristlecone-wo-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let options = CreateOptions { max_bytes: 64 << 20, domain: None, chunk_bytes: None };
        let pool = PoolFile::create(&path, &options, Native::new).unwrap();
        (Self(path), pool)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn spec(options: WoTreeOptions) -> TreeSpec {
    TreeSpec::new("t", 5, "u64", "u64").with_params(options.to_words())
}

fn create(pool: &Arc<PoolFile<Native>>, options: WoTreeOptions) -> Tree {
    Tree::open(pool, of_words(&pool.create_tree(&spec(options)).unwrap()), options, 1).unwrap()
}

fn again(pool: &Arc<PoolFile<Native>>, options: WoTreeOptions) -> Result<Tree> {
    Tree::open(pool, of_words(&pool.trees().unwrap()[0]), options, 1)
}

/// Creates full leaves of every other key, as an ascending load leaves them.
fn ascending(pool: &Arc<PoolFile<Native>>, leaves: u64) -> Tree {
    let tree = create(pool, OPTIONS);
    for key in 0..leaves * NODE {
        tree.write_word(key * 2, key, WriteMode::New).unwrap();
    }
    assert_eq!(tree.check(), []);
    tree
}

/// Removes the entry of a key's leaf from its parent, as a split in a full pool did.
fn forget(tree: &Tree, key: u64) -> u64 {
    let mut path = Path::default();
    let leaf = tree.descend(inner::Aim::At(key), &(), &mut path).unwrap().leaf;
    let parent = path.at_level(1).unwrap();
    let at = tree.place_of(parent, leaf).filter(|at| *at > 0).expect("a leaf that is not its parent's first");
    let left = tree.nodes.entry(parent, at - 1).word.load(tree.medium());
    tree.nodes.entry(parent, at).word.store(tree.medium(), left);
    tree.compact(parent);
    leaf
}

fn contents(tree: &Tree) -> Vec<u64> {
    let (mut batch, mut keys) = (Batch::<Inline, Inline>::default(), Vec::new());
    while tree.scan_forward((Bound::Unbounded, Bound::Unbounded), &mut batch) {
        keys.extend(batch.entries.drain(..).rev().map(|(key, _)| key));
    }
    keys
}

/// Returns a leaf of a tree of full leaves that is the second of at least four under one parent.
fn inner_leaf(tree: &Tree, leaves: u64) -> u64 {
    let second = |leaf: &u64| {
        let mut path = Path::default();
        let at = tree.descend(inner::Aim::At(leaf * NODE * 2), &(), &mut path).unwrap();
        let parent = path.at_level(1).unwrap();
        tree.place_of(parent, at.leaf) == Some(1) && tree.count(parent) > 3
    };
    (0..leaves).find(second).expect("a parent of four leaves")
}

#[test]
fn a_writer_enters_what_an_earlier_version_left_out() {
    for write in [0, 1, 2] {
        let (_scratch, pool) = Scratch::pool(&format!("entered-{write}"));
        let tree = ascending(&pool, 12);
        let leaf = inner_leaf(&tree, 12);
        forget(&tree, leaf * NODE * 2);
        assert_ne!(tree.check(), []);
        match write {
            // An update, an insert that splits the leaf, a removal.
            0 => _ = tree.write_word(leaf * NODE * 2, 7, WriteMode::Update).unwrap().unwrap(),
            1 => _ = tree.write_word(leaf * NODE * 2 + 1, 7, WriteMode::New).unwrap(),
            _ => _ = tree.remove_word(leaf * NODE * 2).unwrap().unwrap(),
        }
        assert_eq!(tree.check(), [], "write {write}");
    }
}

#[test]
fn a_root_that_an_earlier_version_left_out_is_put_up() {
    let (_scratch, pool) = Scratch::pool("root");
    let tree = create(&pool, OPTIONS);
    for key in 0..=NODE {
        tree.write_word(key * 2, key, WriteMode::New).unwrap();
    }
    let root = tree.root();
    let first = tree.nodes.entry(root, 0).word.load(tree.medium());
    tree.anchor().store(tree.medium(), first);
    tree.set_root(first);
    tree.undo_node(root).unwrap();
    tree.nodes.unalloc(root);
    // The second leaf is split, which needs an entry that no node can have yet.
    for key in NODE * 2..NODE * 4 {
        tree.write_word(key, key, WriteMode::Upsert).unwrap();
    }
    assert_eq!(tree.check(), []);
}

/// The neighbour to the right of an empty leaf has no entry. If the range passed to the parent's next
/// leaf, the neighbour's items could not be found from the root any more.
#[test]
fn a_free_beside_a_leaf_without_an_entry_loses_nothing() {
    let (_scratch, pool) = Scratch::pool("beside");
    let tree = ascending(&pool, 12);
    let leaf = inner_leaf(&tree, 12);
    forget(&tree, (leaf + 1) * NODE * 2);
    for key in leaf * NODE..(leaf + 1) * NODE {
        assert!(tree.remove_word(key * 2).unwrap().is_some());
    }
    for key in (leaf + 1) * NODE..(leaf + 2) * NODE {
        assert_eq!(value_of(&tree, key * 2), Some(key));
    }
    assert_eq!(tree.check(), []);
}

/// The record of a split that failed halfway in an earlier version, of a leaf that was split again since.
#[test]
fn the_record_of_a_split_long_past_undoes_nothing() {
    let (_scratch, pool) = Scratch::pool("record");
    let tree = ascending(&pool, 12);
    let before = contents(&tree);
    let medium = tree.medium();
    let first = tree.descend(inner::Aim::At(0), &(), &mut read::NoTrail).unwrap().leaf;
    let second = tree.nodes.leaf_link(first).next.load(medium);
    let (third, separator) = {
        let link = tree.nodes.leaf_link(second);
        (link.next.load(medium), link.high.load(medium))
    };
    tree.log.next_lane(0).write(&Record::Split { left: first, right: third, separator, level: 0 });
    drop(tree);
    let tree = again(&pool, OPTIONS).unwrap();
    assert_eq!((contents(&tree), tree.check()), (before, vec![]));
}

/// A writer is between its change and its count when another thread requests the number of items for the
/// first time.
#[test]
fn what_is_counted_while_a_writer_is_halfway_does_not_stay() {
    let (_scratch, pool) = Scratch::pool("count");
    drop(ascending(&pool, 3));
    let tree = again(&pool, OPTIONS).unwrap();
    tree.remove_word(2).unwrap().unwrap();
    tree.at_leaf(3, &(), |leaf, view, found| {
        let (place, slot) = (found.err().unwrap(), view.first_free(tree.shape.slots).unwrap());
        let item = tree.nodes.item(leaf.node, slot);
        item.key.store(tree.medium(), 3);
        let mut next = *view;
        next.order.insert(place, slot);
        next.bitmap |= 1 << slot;
        tree.commit(leaf, &next, &tree.medium().ordered_within_line());
        std::thread::scope(|scope| scope.spawn(|| tree.len()).join()).unwrap().unwrap();
        tree.added.add(1);
        Ok(write::Change::Done(()))
    })
    .unwrap();
    assert_eq!((tree.len().unwrap(), tree.check()), (3 * NODE, vec![]));
}

/// The leaf that a removal emptied cannot be freed, because the path to its neighbour is damaged.
#[test]
fn a_removal_that_stands_is_no_error() {
    let (_scratch, pool) = Scratch::pool("stands");
    let tree = ascending(&pool, 12);
    let leaf = inner_leaf(&tree, 12);
    let mut path = Path::default();
    tree.descend(inner::Aim::At(leaf * NODE * 2), &(), &mut path).unwrap();
    tree.nodes.entry(path.at_level(1).unwrap(), 0).word.store(tree.medium(), 8);
    for key in leaf * NODE..(leaf + 1) * NODE {
        assert_eq!(tree.remove_word(key * 2).unwrap(), Some(key));
    }
    assert_eq!(value_of(&tree, leaf * NODE * 2), None);
    // Its locks are free.
    assert_eq!(tree.write_word(leaf * NODE * 2, 1, WriteMode::New).unwrap(), None);
}

#[test]
fn a_root_that_is_lost_is_no_empty_tree() {
    let (_scratch, pool) = Scratch::pool("anchor");
    let tree = ascending(&pool, 12);
    tree.log.next_lane(0).write(&Record::Rebuild { leaf: 64 });
    let root = tree.root();
    tree.anchor().store(tree.medium(), 0);
    drop(tree);
    assert!(matches!(again(&pool, OPTIONS), Err(bristlecone_pm::Error::Corrupted { .. })));
    pool.anchor(pool.trees().unwrap()[0].id).store(pool.medium(), root);
    let tree = again(&pool, OPTIONS).unwrap();
    assert_eq!(contents(&tree).len() as u64, 12 * NODE, "nothing was changed by the attempt");
}

/// Every reserved node is returned.
#[test]
fn what_a_split_does_not_need_is_free_again() {
    let (_scratch, pool) = Scratch::pool("reserve");
    let tree = ascending(&pool, 3);
    let nodes = tree.nodes.swept_stats().live_slots;
    let mut reserve = Reserve::empty(&tree);
    reserve.fill(5).unwrap();
    assert_eq!(tree.nodes.swept_stats().live_slots, nodes + 5);
    drop(reserve);
    assert_eq!(tree.nodes.swept_stats().live_slots, nodes);
}

/// Returns the bytes of the first lines of a node, or of a lane.
fn words(pool: &PoolFile<Native>, offset: u64, count: usize) -> Vec<u64> {
    pool.words(offset, count).iter().map(|word| word.load(pool.medium())).collect()
}

#[test]
fn the_nodes_are_golden() {
    for (node_lines, slots_at, link_at, items_at) in
        [(2, 1, 2, 4), (4, 1, 3, 6), (8, 1, 5, 8), (16, 1, 8, 10), (32, 2, 17, 20)]
    {
        let (_scratch, pool) = Scratch::pool(&format!("golden-{node_lines}"));
        let tree = create(&pool, WoTreeOptions { node_lines, log_leaves: 0 });
        let slots = tree.shape.slots as u64;
        let key = |n: u64| 1000 - n;
        for n in 0..=slots {
            tree.write_word(key(n), n, WriteMode::New).unwrap();
        }
        let root = tree.anchor().load(tree.medium());
        let entries = words(&pool, root, 10);
        let (left, right) = (entries[5], entries[7]);
        // Level 1 and no sibling; the key of the first entry is ignored.
        assert_eq!((entries[0], entries[1]), (0x2000_0000_0000_0001, 0), "{node_lines} lines");
        // A key below all others leaves the least item in the left leaf.
        assert_eq!((entries[6], entries[8], entries[9]), (key(slots - 2), u64::MAX, 0));
        let node = words(&pool, left, node_lines as usize * 8);
        assert_eq!((node[link_at], node[link_at + 1]), (right, entries[6]), "{node_lines} lines");
        let State::Leaf { bitmap, valid: true } = State::decode(node[0]).unwrap() else { panic!("no leaf") };
        assert_eq!(node[0], 0x1800_0000_0000_0000 | bitmap);
        let bytes: Vec<u8> = node[slots_at..link_at].iter().flat_map(|word| word.to_le_bytes()).collect();
        let (count, order) = (usize::from(bytes[0]), &bytes[1..]);
        let keys = order[..count].iter().map(|&slot| node[items_at + 2 * usize::from(slot)]);
        let values = order[..count].iter().map(|&slot| node[items_at + 2 * usize::from(slot) + 1]);
        let lowest = key(slots);
        assert!(keys.eq(lowest..lowest + count as u64) && values.eq((0..count as u64).map(|at| slots - at)));
        assert!(order[count..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn the_log_is_golden() {
    let (_scratch, pool) = Scratch::pool("golden-log");
    let tree = create(&pool, OPTIONS);
    let chunks = pool.chunks_of(pool.trees().unwrap()[0].id);
    let log = chunks.iter().find(|chunk| chunk.kind == LOGS).expect("the tree's log").offset;
    tree.log.next_lane(0).write(&Record::Split { left: 1, right: 2, separator: 3, level: 0 });
    assert_eq!(words(&pool, log + 8 * 64, 5), [2, 1, 2, 3, 0]);
    tree.log.next_lane(1).write(&Record::Split { left: 4, right: 5, separator: 6, level: 1 });
    assert!((36..42).any(|line| words(&pool, log + line * 64, 5) == [2, 4, 5, 6, 1]));
    tree.log.next_lane(2).write(&Record::Split { left: 4, right: 5, separator: 6, level: 2 });
    assert_eq!(words(&pool, log + 42 * 64, 5), [2, 4, 5, 6, 2]);
    tree.log.root_lane().write(&Record::Root { node: 7 });
    assert_eq!(words(&pool, log + 63 * 64, 2), [3, 7]);
    let nodes = vec![log::Freed { node: 8, left: 9 }, log::Freed { node: 10, left: 11 }];
    tree.log.free_lane().write(&Record::Free { parent: 12, separator: 13, to_right: true, nodes });
    assert_eq!(words(&pool, log, 9), [4, 12, 13, 1, 2, 8, 9, 10, 11]);
    tree.log.free_lane().wipe();
    assert_eq!(words(&pool, log, 1), [0]);
    let lane = tree.log.own_lane();
    lane.wipe();
    lane.write(&Record::Rebuild { leaf: 14 });
    assert!((8..36).any(|line| words(&pool, log + line * 64, 2) == [1, 14]));
}
