//! `MIGRATE`, which is what resharding a cluster does with each key.

use crate::server::Server;

#[test]
fn migrate_moves_whole_maps_that_survive_on_the_other_side() {
    let (Some(mut from), Some(mut to)) = (Server::start(&[]), Server::start(&[])) else { return };
    let (mut f, mut t) = (from.client(), to.client());
    for map in 0..30 {
        let fields: String = (0..300).map(|n| format!(" {n:04} {map}-{n}")).collect();
        f.run(&format!("OM.SET map{map}{fields}"));
    }
    f.run("PEXPIRE map3 10000000");
    let keys: String = (0..15).map(|map| format!(" map{map}")).collect();
    assert_eq!(
        f.send(&migrate(to.port, &keys).iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap().text(),
        "OK"
    );
    t.run("OM.SET map20 a 1");
    let busy =
        f.send(&migrate(to.port, " map20").iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap().text();
    assert!(busy.contains("BUSYKEY"), "{busy}");
    from.crash();
    to.crash();
    let (mut f, mut t) = (from.client(), to.client());
    assert_eq!(f.run("DBSIZE") + " " + &t.run("DBSIZE"), "15 16");
    for map in 0..30 {
        let holder = if map < 15 { &mut t } else { &mut f };
        assert_eq!(holder.run(&format!("OM.LEN map{map}")), "300");
        assert_eq!(holder.run(&format!("OM.GET map{map} 0299")), format!("{map}-299"));
    }
    assert!(t.run("PTTL map3").parse::<i64>().unwrap() > 9_000_000);
}

fn migrate(port: u16, keys: &str) -> Vec<Vec<u8>> {
    let port = port.to_string();
    let mut words: Vec<Vec<u8>> = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"]
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    words.extend(keys.split_whitespace().map(|key| key.as_bytes().to_vec()));
    words
}
