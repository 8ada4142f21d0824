//! Replicas: full and partial synchronization, promotion.

use crate::server::Server;

fn in_step(master: &Server, replica: &Server) {
    replica.wait("the replica is in step", |c| {
        let digest = master.client().run("DEBUG DIGEST");
        c.run("INFO replication").contains("master_link_status:up") && c.run("DEBUG DIGEST") == digest
    });
}

#[test]
fn a_replica_has_what_its_master_has_and_is_promoted() {
    let (Some(mut master), Some(mut replica)) = (Server::start(&[]), Server::start(&[])) else { return };
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
    in_step(&master, &replica);
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
    replica.wait("the replica is amid loading", |c| {
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
