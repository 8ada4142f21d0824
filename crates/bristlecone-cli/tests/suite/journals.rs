//! Pools with a journal.

use bristlecone::Pool;

use crate::common::Bench;

#[test]
fn a_pool_with_a_journal_is_used_like_any_other() {
    let bench = Bench::new();
    assert!(bench.run("create @p --size 64M --domain journal --tree t").ok().contains("domain journal"));
    bench.run("put @p t pine 1").ok();
    bench.run("put @p t oak 2").ok();
    assert_eq!(bench.run("get @p t pine").ok(), "1\n");
    assert_eq!(bench.run("info @p --json").json()["domain"], "journal");
    assert!(bench.run("check @p").ok().starts_with("1 tree"));
    bench.run("rename @p t trees").ok();
    bench.run("copy @p @q").ok();
    assert_eq!(bench.run("get @q trees oak").ok(), "2\n");
    bench.run("put @p trees elm 3 --domain process").refused(2, "journal");
    bench.run("drop @p trees").ok();
}

#[test]
fn the_files_of_a_journal_are_listed_and_verified() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    bench.run("put @p t pine 1").ok();
    assert!(bench.run("journal list @p").ok().contains("segment-"));
    let verified = bench.run("journal verify @p.journal --json").json();
    assert_eq!((&verified["changes"], &verified["directory_changes"]), (&1.into(), &1.into()));
    {
        let pool = Pool::open(bench.path("p")).unwrap();
        pool.checkpoint().unwrap();
        assert!(bench.run("journal verify @p").ok().contains("checkpoint of 1 trees"));
    }
    let files = bench.run("journal list @p --json").json();
    let name = files["files"][0]["name"].as_str().unwrap().to_owned();
    let path = bench.path("p.journal").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(bench.run("journal verify @p").code, 0);
    assert_ne!(bench.run("journal list @q").code, 0);
}

#[test]
fn a_pool_without_its_journal_is_refused() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    std::fs::rename(bench.path("p.journal"), bench.path("elsewhere")).unwrap();
    let refused = bench.run("get @p t pine");
    assert!(refused.code != 0 || refused.stdout.is_empty());
    assert_ne!(bench.run("put @p t pine 1").code, 0);
    std::fs::rename(bench.path("elsewhere"), bench.path("p.journal")).unwrap();
    bench.run("put @p t pine 1").ok();
}
