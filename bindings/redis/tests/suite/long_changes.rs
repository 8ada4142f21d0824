//! Removals and copies of many fields, which a thread makes: what other clients see, and what a crash leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Reply};
use crate::server::{DESIGNS, Server};

fn fill(c: &mut Client, key: &str, fields: usize) {
    for first in (0..fields).step_by(1000) {
        let items: String = (first..fields.min(first + 1000)).map(|n| format!(" {n:07} {n}")).collect();
        c.run(&format!("OM.SET {key}{items}"));
    }
}

fn count(c: &mut Client, key: &str) -> usize {
    c.run(&format!("OM.COUNT {key} - +")).parse().unwrap()
}

fn ask(c: &mut Client, words: &str) {
    c.ask(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
}

#[test]
fn long_changes_do_what_short_ones_would() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 512mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        fill(&mut c, "m", 10_000);
        assert_eq!(c.run("COPY m copy"), "1");
        assert_eq!((count(&mut c, "copy"), c.run("OM.LEN copy").as_str()), (10_000, "10000"), "{design}");
        assert_eq!(c.run("OM.DELRANGE copy [0001000 [0005999"), "5000");
        assert_eq!((count(&mut c, "copy"), c.run("OM.LEN copy").as_str()), (5000, "5000"), "{design}");
        assert_eq!(c.run("OM.DELRANGE copy - + LIMIT 1500"), "1500");
        assert_eq!(c.run("OM.RANGE copy - + LIMIT 1"), "0006500");
        let Reply::Array(popped) = c.send(&[b"OM.POPMAX", b"copy", b"1200"]).unwrap() else { panic!() };
        assert_eq!(popped.len(), 2400);
        assert_eq!((popped[0].text(), popped[2399].text()), ("0009999".to_owned(), "8800".to_owned()));
        let Reply::Array(popped) = c.send(&[b"OM.POPMIN", b"copy", b"1200"]).unwrap() else { panic!() };
        assert_eq!((popped[0].text(), popped[2399].text()), ("0006500".to_owned(), "7699".to_owned()));
        assert_eq!(c.run("OM.LEN copy"), "1100");
        assert_eq!(c.run("OM.DELRANGE copy - +") + &c.run("EXISTS copy"), "11000");
        assert_eq!(c.run("OM.DELRANGE m - [0001999") + &c.run("OM.LEN m"), "20008000");
        // A group cannot wait, and sees what came before it.
        c.run("MULTI");
        c.run("COPY m again");
        c.run("OM.DELRANGE again - [0004999");
        c.run("OM.LEN again");
        c.run("COPY again third");
        c.run("OM.POPMIN third 2000");
        c.run("OM.LEN third");
        let Reply::Array(replies) = c.send(&[b"EXEC"]).unwrap() else { panic!() };
        assert_eq!(replies[1..3], [Reply::Number(3000), Reply::Number(5000)], "{design}");
        assert_eq!(replies[5], Reply::Number(3000), "{design}");
        server.crash();
        let mut c = server.client();
        let lens = ["m", "again", "third"].map(|key| count(&mut c, key));
        assert_eq!(
            (lens, c.run("EXISTS copy"), c.run("OM.CHECK")),
            ([8000, 5000, 3000], "0".into(), String::new())
        );
    }
}

#[test]
fn others_are_served_and_nobody_sees_a_part() {
    let Some(server) = Server::start_with("max-bytes 1gb", &[]) else { return };
    let (mut c, mut long, mut same) = (server.client(), server.client(), server.client());
    fill(&mut c, "m", 60_000);
    c.run("OM.SET other a 1");
    let mut is_served = false;
    for _ in 0..5 {
        c.run("COPY m work");
        // The maps are copied meanwhile, and another one can be read and written.
        assert_eq!(c.run("OM.SET other a 2") + &c.run("OM.GET other a"), "02");
        ask(&mut long, "OM.DELRANGE work (0000009 (0059990");
        while !c.run("CLIENT LIST").contains("cmd=om.delrange") {}
        ask(&mut same, "OM.COUNT work - +");
        let began = Instant::now();
        while c.run("INFO clients").contains("blocked_clients:2") {
            is_served = true;
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(long.read().unwrap(), Reply::Number(59_980));
        assert_eq!(same.read().unwrap(), Reply::Number(20));
        c.run("DEL work");
    }
    assert!(is_served, "another client is served while one removes and one waits");
}

#[test]
fn names_follow_a_map_that_is_being_changed() {
    let Some(master) = Server::start_with("max-bytes 1gb", &["--appendonly", "yes", "--appendfsync", "no"])
    else {
        return;
    };
    let Some(replica) =
        Server::start_with("max-bytes 1gb", &["--replicaof", &format!("127.0.0.1 {}", master.port)])
    else {
        return;
    };
    replica.wait("it is synchronized", |c| c.run("INFO replication").contains("master_link_status:up"));
    let (mut c, mut long) = (master.client(), master.client());
    fill(&mut c, "m", 20_000);
    let changes = [
        "RENAME work moved",
        "COPY work moved",
        "MOVE work 1",
        "SWAPDB 0 1",
        "DEL work",
        "SET work text",
        "OM.RANGESTORE work m [0000001 [0000002",
        "OM.SET work 0000005 new",
        "EXPIRE work 1000",
        "FLUSHDB",
        "DUMP work",
    ];
    for change in changes {
        if change == "FLUSHDB" {
            fill(&mut c, "m", 20_000);
        }
        c.run("COPY m work");
        ask(&mut long, "OM.DELRANGE work [0000010 [0019000");
        c.run(change);
        let removed = long.read().unwrap();
        assert!(
            matches!(removed, Reply::Number(19_001 | 18_991 | 0 | 2)) || matches!(removed, Reply::Error(_)),
            "{change}: {removed:?}"
        );
        if change == "SWAPDB 0 1" {
            c.run("SWAPDB 0 1");
        }
        let state = |c: &mut Client| {
            let mut state = String::new();
            for db in ["0", "1"] {
                c.run(&format!("SELECT {db}"));
                for key in ["work", "moved"] {
                    state += &format!("{db} {key} {};", c.run(&format!("OM.COUNT {key} - +")));
                }
            }
            c.run("SELECT 0");
            state
        };
        let expected = state(&mut c);
        replica.wait(&format!("after {change} it has {expected}"), |c| state(c) == expected);
        c.run("DEL work moved");
        c.run("SELECT 1");
        c.run("DEL work moved");
        c.run("SELECT 0");
    }
}

#[test]
fn kills_leave_all_or_nothing_of_a_long_change() {
    let rounds =
        std::env::var("BRISTLECONE_REDIS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(6);
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 1gb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        fill(&mut c, "m", 20_000);
        for round in 0..rounds {
            let mut c = server.client();
            c.run("DEL work copy");
            assert_eq!(c.run("COPY m work") + &count(&mut c, "work").to_string(), "120000");
            let mut killed = server.client();
            let pause = Duration::from_micros(round * 1777 % 25_000);
            if round % 2 == 0 {
                ask(&mut killed, "OM.DELRANGE work [0000010 [0019989");
            } else {
                // It is acknowledged before its fields are there.
                assert_eq!(killed.run("COPY work copy"), "1");
            }
            std::thread::sleep(pause);
            server.crash();
            let mut c = server.client();
            let (work, copy) = (count(&mut c, "work"), count(&mut c, "copy"));
            if round % 2 == 0 {
                assert!(work == 20_000 || work == 20, "{design} {round}: {work}");
            } else {
                assert_eq!((work, copy), (20_000, 20_000), "{design} {round}");
                assert_eq!(c.run("OM.GET copy 0019999") + &c.run("OM.LEN copy"), "1999920000");
            }
        }
        assert_eq!(server.client().run("OM.CHECK"), "", "{design}");
    }
}

#[test]
fn a_copy_outlives_the_map_that_it_is_copied_from() {
    let Some(mut server) = Server::start_with("max-bytes 1gb", &[]) else { return };
    let mut c = server.client();
    for round in 0..4 {
        fill(&mut c, "m", 20_000);
        c.run("COPY m copy REPLACE");
        c.run(["DEL m", "RENAME m other", "OM.RANGESTORE m none - +", "SET m text"][round]);
        if round % 2 == 0 {
            server.crash();
            c = server.client();
        }
        assert_eq!(count(&mut c, "copy"), 20_000, "{round}");
        c.run("DEL m other");
    }
    // A copy that is removed before it is complete leaves nothing.
    fill(&mut c, "m", 20_000);
    c.run("DEL copy");
    c.run("COPY m copy");
    c.run("DEL copy");
    server.wait("what was copied is gone", |c| {
        c.run("INFO bristlecone").contains("bristlecone_fields:20000\r")
    });
    c.run("COPY m copy");
    c.run("FLUSHALL");
    server.wait("all is gone", |c| c.run("INFO bristlecone").contains("bristlecone_fields:0\r"));
    assert_eq!(c.run("OM.CHECK"), "");
}

#[test]
fn children_save_long_changes_wholly_or_not_at_all() {
    let Some(mut server) = Server::start_with("max-bytes 1gb", &[]) else { return };
    let mut c = server.client();
    fill(&mut c, "m", 40_000);
    for round in 0..6u64 {
        c.run("DEL work copy");
        c.run("COPY m work");
        assert_eq!(count(&mut c, "work"), 40_000);
        let mut long = server.client();
        if round % 2 == 0 {
            ask(&mut long, "OM.DELRANGE work [0000010 [0039989");
        } else {
            ask(&mut long, "COPY work copy");
        }
        std::thread::sleep(Duration::from_millis(2 + round * 5));
        c.run("BGSAVE");
        long.read().unwrap();
        server
            .wait("the child has saved", |c| c.run("INFO persistence").contains("rdb_bgsave_in_progress:0"));
        assert!(c.run("INFO persistence").contains("rdb_last_bgsave_status:ok"));
        server.kill();
        std::fs::remove_file(server.pool()).unwrap();
        server.run();
        c = server.client();
        let (work, copy) = (count(&mut c, "work"), count(&mut c, "copy"));
        assert!(work == 40_000 || round % 2 == 0 && work == 20, "{round}: {work}");
        assert!(copy == 0 || copy == 40_000, "{round}: {copy}");
    }
}

#[test]
fn a_copy_that_finds_no_room_waits_and_refuses_others() {
    let Some(server) = Server::start_with("max-bytes 192mb", &[]) else { return };
    let mut c = server.client();
    let value = vec![b'v'; 1000];
    for n in 0..40_000u32 {
        c.send(&[b"OM.SET", b"m", n.to_string().as_bytes(), &value]).unwrap();
    }
    // It fits twice, but not beside what comes meanwhile.
    let copied = c.run("COPY m copy");
    let is_full = AtomicBool::new(false);
    for n in 0..60_000u32 {
        let reply = c.send(&[b"OM.SET", b"fill", n.to_string().as_bytes(), &value]).unwrap().text();
        if reply.starts_with("OOM") {
            is_full.store(true, Ordering::Relaxed);
            break;
        }
    }
    assert!(is_full.load(Ordering::Relaxed), "the pool is full");
    if copied == "1" {
        let reply = c.run("OM.COUNT copy - +");
        assert!(reply == "40000" || reply.starts_with("OOM"), "{reply}");
        c.run("DEL fill");
        server.wait("it continues once there is room", |c| c.run("OM.COUNT copy - +") == "40000");
    }
    assert_eq!(count(&mut c, "m"), 40_000);
}
