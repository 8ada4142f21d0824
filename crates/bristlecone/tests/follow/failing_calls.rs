//! Pools that cannot be followed: each with an error that states the reason.

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use bristlecone::dynamic::Datum;
use bristlecone::{Error, KeepIndex, Pool};

use crate::common::{Scratch, segment_of};

/// Expects that following a pool fails with an error that contains these words.
#[track_caller]
fn expect(path: &Path, words: &str) {
    match Pool::follow(path) {
        Err(Error::NoWriter { why, .. }) => assert!(why.contains(words), "{why:?} without {words:?}"),
        other => panic!("{other:?}, not {words:?}"),
    }
}

#[test]
fn what_has_no_writer_is_not_followed() {
    let scratch = Scratch::new();
    assert!(matches!(Pool::follow(&scratch.0), Err(Error::NotFound { .. })));
    std::fs::write(&scratch.0, vec![7; 1 << 20]).unwrap();
    assert!(matches!(Pool::follow(&scratch.0), Err(Error::NotAPool { .. })));
    std::fs::remove_file(&scratch.0).unwrap();
    let pool = scratch.options().keep_index(KeepIndex::Always).open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.insert(1, 2).unwrap();
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.tree::<u64, u64>("t").unwrap();
    drop(tree);
    pool.close().unwrap();
    expect(&scratch.0, "no process writes");
    assert!(matches!(followed.get(1), Err(Error::NoWriter { .. })));
    // Plain readers keep a writer out, and cannot be followed.
    let reader = Pool::options().read_only(true).open(&scratch.0).unwrap();
    expect(&scratch.0, "no process writes");
    drop(reader);
    let pool = scratch.options().keep_index(KeepIndex::Never).open(&scratch.0).unwrap();
    expect(&scratch.0, "no process writes to it that keeps its index in shared memory");
    drop(pool);
    // With a writer that can be followed, following works.
    let pool = scratch.open();
    let _tree = pool.tree::<u64, u64>("t").unwrap();
    assert_eq!(followed.get(1).unwrap(), Some(2));
}

#[test]
fn options_of_writers_are_refused() {
    let scratch = Scratch::new();
    let _pool = scratch.open();
    let options = [
        Pool::options().create(true),
        Pool::options().create_new(true),
        Pool::options().max_bytes(1 << 30),
        Pool::options().domain(bristlecone::Domain::Adr),
    ];
    for options in options {
        assert!(matches!(options.follow(&scratch.0), Err(Error::Invalid { .. })));
    }
}

#[test]
fn nothing_is_written_through_a_follower() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.insert(1, 2).unwrap();
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.tree::<u64, u64>("t").unwrap();
    assert!(matches!(followed.insert(1, 3), Err(Error::ReadOnly)));
    assert!(matches!(followed.upsert(1, 3), Err(Error::ReadOnly)));
    assert!(matches!(followed.remove(1), Err(Error::ReadOnly)));
    assert!(matches!(followed.clear(), Err(Error::ReadOnly)));
    assert!(matches!(follower.tree::<u64, u64>("other"), Err(Error::NoSuchTree { .. })));
    assert!(matches!(follower.tree_options("other").create::<u64, u64>(), Err(Error::ReadOnly)));
    assert!(matches!(follower.rename_tree("t", "u"), Err(Error::ReadOnly)));
    assert!(matches!(follower.clear_tree("t"), Err(Error::ReadOnly)));
    assert!(matches!(follower.drop_tree("t"), Err(Error::ReadOnly)));
    assert!(matches!(follower.prefault(1), Err(Error::ReadOnly)));
    assert!(matches!(follower.tree::<u64, &str>("t"), Err(Error::Mismatch { .. })));
    // Other processes would bypass a snapshot of this process.
    assert!(matches!(follower.snapshot(), Err(Error::Invalid { .. })));
    assert!(matches!(follower.begin_transaction(), Err(Error::Invalid { .. })));
    assert!(matches!(follower.transaction(|_| Ok(())), Err(Error::Invalid { .. })));
    let copy = Scratch::new();
    let copied = follower.backup(&copy.0, bristlecone::BackupOptions::new());
    assert!(matches!(copied, Err(Error::Invalid { .. })) && !copy.0.exists());
    let mut batch = follower.batch();
    batch.insert(&followed, 1, 3);
    assert!(matches!(batch.commit(), Err(Error::ReadOnly)));
    drop(followed);
    assert!(matches!(follower.drop_tree("t"), Err(Error::ReadOnly)));
    assert!(follower.check().is_empty());
    follower.close().unwrap();
    assert_eq!(tree.get(1).unwrap(), Some(2));
}

/// A dynamic tree never panics because of a missing writer: each of its calls can return the error.
#[test]
fn dynamic_trees_return_the_error() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, &str>("t").unwrap();
    (0..100).for_each(|key| tree.upsert(key, "pine").unwrap());
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.dynamic_tree("t").unwrap();
    type Call<'a> = (&'a str, &'a dyn Fn() -> bristlecone::Result<bool>);
    let item = |key: u64| Some((Datum::U64(key), Datum::from("pine").into_owned()));
    let seven = &Datum::U64(7);
    let (few, mut found, mut there) = ([seven, &Datum::U64(700)], Vec::new(), Vec::new());
    followed.get_many(&few, &mut found).unwrap();
    assert_eq!(found, [Some(Datum::from("pine")), None]);
    followed.contains_many(&few, &mut there).unwrap();
    assert_eq!(there, [true, false]);
    let calls: [Call<'_>; 12] = [
        ("get", &|| Ok(followed.get(seven)? == Some("pine".into()))),
        ("contains_key", &|| followed.contains_key(seven)),
        ("is_empty", &|| Ok(!followed.is_empty()?)),
        ("get_many", &|| followed.get_many(&few, &mut Vec::new()).map(|()| true)),
        ("contains_many", &|| followed.contains_many(&few, &mut Vec::new()).map(|()| true)),
        ("get_lt", &|| Ok(followed.get_lt(seven)? == item(6))),
        ("get_le", &|| Ok(followed.get_le(seven)? == item(7))),
        ("get_gt", &|| Ok(followed.get_gt(seven)? == item(8))),
        ("get_ge", &|| Ok(followed.get_ge(seven)? == item(7))),
        ("first_key_value, last_key_value", &|| {
            Ok(followed.first_key_value()? == item(0) && followed.last_key_value()? == item(99))
        }),
        ("count", &|| Ok(followed.count(&Datum::U64(10)..&Datum::U64(20))? == 10)),
        ("len", &|| Ok(followed.len()? == 100)),
    ];
    for (name, call) in &calls {
        assert!(call().unwrap(), "{name}");
    }
    drop(tree);
    pool.close().unwrap();
    for (name, call) in &calls {
        let answer = call();
        assert!(matches!(answer, Err(Error::NoWriter { .. })), "{name}: {answer:?}");
    }
}

#[test]
fn segments_that_are_not_the_pools_are_refused() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.insert(1, 2).unwrap();
    let segment = segment_of(&pool);
    // A copy has its own name, and another writer or none.
    let copy = Scratch::new();
    std::fs::copy(&scratch.0, &copy.0).unwrap();
    expect(&copy.0, "that of another file");
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.tree::<u64, u64>("t").unwrap();
    // A file that others may read does not belong only to this user.
    let mode = |mode| std::fs::set_permissions(&segment, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    expect(&scratch.0, "no process writes");
    mode(0o600);
    Pool::follow(&scratch.0).unwrap().tree::<u64, u64>("t").unwrap();
    // Another build of the library.
    let file = std::fs::File::options().read(true).write(true).open(&segment).unwrap();
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 0).unwrap();
    for at in (0..8 * 14).step_by(8) {
        let mut damaged = header;
        damaged[at] ^= 1;
        file.write_all_at(&damaged, 0).unwrap();
        expect(&scratch.0, "is damaged");
    }
    file.write_all_at(&header, 0).unwrap();
    // Without the file, a follower notices in time, and the next one finds no writer.
    let away = segment.with_extension("away");
    std::fs::rename(&segment, &away).unwrap();
    expect(&scratch.0, "no process writes");
    symlink(&away, &segment).unwrap();
    expect(&scratch.0, "no process writes");
    std::fs::remove_file(&segment).unwrap();
    assert_eq!(followed.get(1).unwrap(), Some(2));
    std::fs::remove_file(&away).unwrap();
    let gone = (0..5000).find_map(|_| followed.get(1).err());
    assert!(matches!(gone, Some(Error::NoWriter { .. })), "{gone:?}");
    drop(tree);
    pool.close().unwrap();
}

#[test]
fn a_pool_has_so_many_followers() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.insert(1, 2).unwrap();
    let mut followers: Vec<Pool> = (0..256).map(|_| Pool::follow(&scratch.0).unwrap()).collect();
    expect(&scratch.0, "256 followers");
    followers.pop();
    let one_more = Pool::follow(&scratch.0).unwrap();
    assert_eq!(one_more.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
}

#[test]
fn a_pool_that_is_cut_off_under_its_follower_is_no_crash() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, &str>("t").unwrap();
    (0..1000).for_each(|key| _ = tree.insert(key, "value").unwrap());
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.tree::<u64, &str>("t").unwrap();
    assert_eq!(followed.get(7).unwrap().as_deref(), Some("value"));
    let file = std::fs::File::options().write(true).open(&scratch.0).unwrap();
    let len = file.metadata().unwrap().len();
    let copy = std::fs::read(&scratch.0).unwrap();
    // Everything behind the header is removed temporarily, while the writer accesses none of it.
    file.set_len(len - (6 << 20)).unwrap();
    let found = followed.get(7);
    file.set_len(len).unwrap();
    file.write_all_at(&copy, 0).unwrap();
    assert!(
        found.is_err() || found.as_ref().is_ok_and(|found| found.as_deref() == Some("value")),
        "{found:?}"
    );
    // After the repair, following works again.
    assert_eq!(followed.get(7).unwrap().as_deref(), Some("value"));
}
