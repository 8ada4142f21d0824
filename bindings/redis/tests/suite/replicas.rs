//! Replicas: full and partial synchronization, promotion.

use crate::client::Client;
use crate::server::Server;

fn in_step(master: &Server, replica: &Server) {
    replica.wait("the replica is in step", |c| {
        let digest = master.client().run("DEBUG DIGEST");
        c.run("INFO replication").contains("master_link_status:up") && c.run("DEBUG DIGEST") == digest
    });
}

#[test]
fn a_replica_has_what_its_master_has_and_is_promoted() {
    let start = || Server::start(&["--appendonly", "yes"]);
    let (Some(mut master), Some(mut replica)) = (start(), start()) else { return };
    let (mut m, mut r) = (master.client(), replica.client());
    r.run("OM.SET own a 1");
    r.run("OM.SET m a other");
    for map in 0..20 {
        let fields: String = (0..500).map(|n| format!(" {n:04} {}", map * n)).collect();
        m.run(&format!("OM.SET map{map}{fields}"));
    }
    m.run("OM.SET m a 1");
    m.run("PEXPIRE map3 10000000");
    assert_eq!(r.run(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "OK");
    in_step(&master, &replica);
    let mut r = replica.client();
    assert_eq!(r.run("EXISTS own") + &r.run("OM.GET m a"), "01");
    assert!(r.run("OM.SET m a 2").starts_with("READONLY"));
    for command in [
        "OM.INCRBY m n 5",
        "OM.INCRBY m n 6",
        "OM.CAS m a 1 2",
        "OM.POPMIN map1 3",
        "OM.POPMAX map1",
        "OM.DELRANGE map2 [0100 [0200",
        "OM.DEL map4 0007 no",
        "OM.SET m x 1 y 2 NX",
        "RENAME map5 renamed",
        "COPY map6 copied",
        "DEL map7",
        "MOVE map8 2",
        "PERSIST map3",
        "OM.DELRANGE map9 - + LIMIT 5",
    ] {
        m.run(command);
    }
    m.run("MULTI");
    m.run("OM.SET m tx 1");
    m.run("OM.SET n tx 1");
    m.run("EXEC");
    let script = b"redis.call('OM.SET', KEYS[1], 'one', '1'); redis.call('OM.SET', KEYS[1], 'two', '2', 'three', '3'); \
        redis.call('OM.DEL', KEYS[1], 'two'); return redis.call('OM.INCRBY', KEYS[1], 'one', 1)";
    assert_eq!(m.send(&[b"EVAL", script, b"1", b"m"]).unwrap().text(), "2");
    in_step(&master, &replica);
    assert_eq!(replica.client().run("OM.MGET m one two three"), "2 nil 3");
    // That is for the master's own file.
    assert!(!replica.client().run("INFO commandstats").contains("om.unit"));
    let digest = m.run("DEBUG DIGEST");
    // The replica keeps what it got over a crash.
    replica.crash();
    assert_eq!(replica.client().run("DEBUG DIGEST"), digest);
    assert_eq!(replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", master.port)), "OK");
    m.run("OM.INCRBY m n 7");
    in_step(&master, &replica);
    let digest = m.run("DEBUG DIGEST");
    master.kill();
    assert_eq!(replica.client().run("REPLICAOF NO ONE"), "OK");
    assert_eq!(replica.client().run("DEBUG DIGEST"), digest);
    assert_eq!(replica.client().run("OM.INCRBY m n 1"), "19");
    // What was the master comes back as a replica, and takes what the new one has.
    master.run();
    master.client().run(&format!("REPLICAOF 127.0.0.1 {}", replica.port));
    in_step(&replica, &master);
    assert_eq!(master.client().run("OM.GET m n") + &master.client().run("OM.CHECK"), "19");
}

#[test]
fn a_full_synchronization_that_is_cut_short_leaves_no_part_of_it() {
    // The replica takes its time with each key, and tells meanwhile that it is loading.
    let slowly = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];
    let (Some(master), Some(mut replica)) = (Server::start(&[]), Server::start(&slowly)) else { return };
    let (mut m, mut r) = (master.client(), replica.client());
    for map in 0..200 {
        m.run(&format!("OM.SET map{map} a 1 b {}", "2".repeat(100)));
    }
    r.run("OM.SET own a 1");
    r.run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    replica.wait("the replica is loading", |c| {
        let loaded = c.run("INFO persistence").lines().find_map(|line| {
            line.strip_prefix("loading_loaded_bytes:").and_then(|bytes| bytes.parse::<u64>().ok())
        });
        loaded.is_some_and(|bytes| bytes > 4096)
    });
    replica.kill();
    replica.arguments.clear();
    replica.run();
    // All of the file that the master sent, if the server kept it under the name of its own; or nothing.
    let size = replica.client().run("DBSIZE");
    assert!(["0", "200"].contains(&size.as_str()), "{size}");
    assert_eq!(replica.client().run("EXISTS own"), "0");
    replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    in_step(&master, &replica);
    replica.crash();
    assert_eq!(replica.client().run("DBSIZE"), "200");
}

/// Returns a number of `INFO`.
fn number(c: &mut Client, name: &str) -> u64 {
    let info = c.run("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {info}")).parse().unwrap()
}

#[test]
fn a_killed_replica_with_an_old_file_synchronizes_in_full() {
    let Some(master) = Server::start(&[]) else { return };
    let mut m = master.client();
    m.run("OM.SET a x 1");
    m.run("OM.SET b x 2");
    let port = master.port.to_string();
    let replica_of = ["--replicaof", "127.0.0.1", &port];
    let Some(mut replica) = Server::start(&replica_of) else { return };
    in_step(&master, &replica);
    // The file that the replica got is from before these.
    for command in ["RENAME a moved", "COPY b a", "OM.INCRBY b x 1", "RENAME b moved", "SET s 1"] {
        assert!(!m.run(command).starts_with("ERR"), "{command}");
    }
    in_step(&master, &replica);
    for round in 0..3 {
        assert_eq!(number(&mut m, "sync_full"), 1 + round);
        replica.kill();
        m.run("OM.INCRBY moved x 1");
        replica.run();
        in_step(&master, &replica);
        let c = &mut replica.client();
        assert_eq!(c.run("OM.GET a x") + &c.run("EXISTS b") + &c.run("GET s"), "201");
        assert_eq!(c.run("OM.GET moved x"), (4 + round).to_string());
    }
    assert_eq!(number(&mut m, "sync_partial_ok"), 0);
}

#[test]
fn a_replica_that_saved_and_ended_goes_on_where_it_was() {
    let Some(master) = Server::start(&[]) else { return };
    let mut m = master.client();
    m.run("OM.SET a x 1");
    let port = master.port.to_string();
    let Some(mut replica) = Server::start(&["--replicaof", "127.0.0.1", &port]) else { return };
    in_step(&master, &replica);
    m.run("RENAME a b");
    in_step(&master, &replica);
    replica.shut_down("SHUTDOWN SAVE");
    m.run("RENAME b c");
    replica.run();
    in_step(&master, &replica);
    assert_eq!((number(&mut m, "sync_full"), number(&mut m, "sync_partial_ok")), (1, 1));
    assert_eq!(replica.client().run("OM.GET c x"), "1");
    // What ends without saving has an old file again.
    m.run("RENAME c d");
    in_step(&master, &replica);
    replica.shut_down("SHUTDOWN NOSAVE");
    replica.run();
    in_step(&master, &replica);
    assert_eq!(replica.client().run("OM.GET d x") + &replica.client().run("EXISTS c"), "10");
    assert_eq!((number(&mut m, "sync_full"), number(&mut m, "sync_partial_ok")), (2, 1));
}

#[test]
fn a_killed_master_with_an_old_file_does_not_tell_a_replica_that_it_has_everything() {
    let forbidden = ["--enable-debug-command", "no"];
    let (Some(mut master), Some(replica)) = (Server::start(&forbidden), Server::start(&[])) else { return };
    let mut m = master.client();
    m.run("OM.SET a x 1");
    replica.client().run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    replica.wait("the replica is there", |c| c.run("OM.GET a x") == "1");
    assert_eq!(m.run("WAIT 1 10000"), "1");
    // The child that synchronizes the replica may not have ended yet.
    master.wait("the master saves", |c| c.run("SAVE") == "OK");
    // The replica is at the file's offset, and is kept from what follows.
    m.run("CONFIG SET requirepass secret");
    m.run("AUTH secret");
    m.run("CLIENT KILL TYPE replica");
    m.run("OM.SET a y late");
    master.crash();
    replica.wait("the replica has what was written late", |c| c.run("OM.GET a y") == "late");
    assert_eq!(number(&mut master.client(), "sync_full"), 1);
    assert!(master.client().run("DEBUG DIGEST").starts_with("ERR"));
}

#[test]
fn a_killed_replica_of_a_cluster_synchronizes_in_full() {
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"];
    let (Some(master), Some(mut replica)) = (Server::start(&cluster), Server::start(&cluster)) else {
        return;
    };
    let (mut m, mut r) = (master.client(), replica.client());
    assert_eq!(m.run("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    r.run(&format!("CLUSTER MEET 127.0.0.1 {}", master.port));
    let id = m.run("CLUSTER MYID");
    replica.wait("the nodes know each other", |c| {
        c.run(&format!("CLUSTER REPLICATE {id}")) == "OK"
            && c.run("CLUSTER INFO").contains("cluster_state:ok")
    });
    m.run("OM.SET {h}a x 1");
    in_step(&master, &replica);
    for command in ["RENAME {h}a {h}b", "OM.SET {h}a x 2"] {
        m.run(command);
    }
    in_step(&master, &replica);
    let before = (number(&mut m, "sync_full"), number(&mut m, "sync_partial_ok"));
    replica.crash();
    in_step(&master, &replica);
    let after = (number(&mut m, "sync_full"), number(&mut m, "sync_partial_ok"));
    assert_eq!(after, (before.0 + 1, before.1));
}
