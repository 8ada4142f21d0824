//! Commands of single fields with conventions of hashes, pops that wait, and commands of several maps.

use std::time::{Duration, Instant};

use crate::client::{Client, Reply};
use crate::server::{DESIGNS, Server};

#[test]
fn getdel_returns_what_it_removes() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let long = "v".repeat(400);
    c.run(&format!("OM.SET small a 1 b 2 c {long}"));
    c.run("OM.SET m a 1 b 2");
    for key in ["m", "small"] {
        assert_eq!(c.run(&format!("OM.GETDEL {key} a")) + &c.run(&format!("OM.GETDEL {key} a")), "1nil");
    }
    assert_eq!(c.run("OM.GETDEL m b") + &c.run("EXISTS m") + &c.run("OM.GETDEL none a"), "20nil");
    server.crash();
    assert_eq!(server.client().run("OM.RANGE small - +"), "b c");
    assert_eq!(server.client().run("EXISTS m"), "0");
}

#[test]
fn incrbyfloat_adds_as_hincrbyfloat_does() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for (start, by) in
        [("10.5", "0.1"), ("5.0e3", "2.0e2"), ("0", "-1.25"), ("3", "1"), ("-0.5", "0.5"), ("1e15", "0.5")]
    {
        c.run(&format!("OM.SET m f {start}"));
        c.run(&format!("HSET h f {start}"));
        let ours = c.run(&format!("OM.INCRBYFLOAT m f {by}"));
        assert_eq!(ours, c.run(&format!("HINCRBYFLOAT h f {by}")), "{start} {by}");
        assert_eq!(c.run("OM.GET m f"), ours);
    }
    assert_eq!(c.run("OM.INCRBYFLOAT m new 1.5"), "1.5");
    assert_eq!(c.run("OM.INCRBYFLOAT created f 2"), "2");
    c.run("OM.SET m t text big 1.7e308");
    for (words, why) in [
        ("m f x", "not a valid float"),
        ("m f inf", "not a valid float"),
        ("m f nan", "not a valid float"),
        ("m f 1e999", "not a valid float"),
        ("m t 1", "not a float"),
        ("m big 1.7e308", "Infinity"),
    ] {
        let reply = c.run(&format!("OM.INCRBYFLOAT {words}"));
        assert!(reply.starts_with("ERR") && reply.contains(why), "{words}: {reply}");
    }
    assert!(c.send(&[b"OM.INCRBYFLOAT", b"m", b"f", b""]).unwrap().text().contains("not a valid float"));
}

#[test]
fn rangestore_replaces_its_destination() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET src a 1 b 2 c 3 d 4");
        let large: String = (0..500).map(|n| format!(" {n:04} v{n}")).collect();
        c.run(&format!("OM.SET big{large}"));
        for dst in ["fresh", "text", "map", "large"] {
            c.run("SET text 1 EX 1000");
            c.run("OM.SET map x 1");
            c.run("EXPIRE map 1000");
            c.run(&format!("OM.SET large{large}"));
            assert_eq!(c.run(&format!("OM.RANGESTORE {dst} src [b (d")), "2", "{dst}");
            assert_eq!(
                c.run(&format!("OM.RANGE {dst} - + WITHVALUES")) + &c.run(&format!("TTL {dst}")),
                "b 2 c 3-1"
            );
            assert_eq!(c.run(&format!("OM.RANGESTORE {dst} big + - REV LIMIT 1 300")), "300");
            assert_eq!(
                c.run(&format!("OM.COUNT {dst} - +")) + &c.run(&format!("OM.GET {dst} 0498")),
                "300v498"
            );
        }
        assert_eq!(c.run("OM.RANGESTORE src src PREFIX b"), "1");
        assert_eq!(c.run("OM.RANGE src - +"), "b");
        assert_eq!(c.run("OM.RANGESTORE map src MATCH x").split(' ').next(), Some("ERR"));
        assert_eq!(c.run("OM.RANGESTORE map src [x +") + &c.run("EXISTS map"), "00");
        assert_eq!(c.run("OM.RANGESTORE none missing - +") + &c.run("EXISTS none"), "00");
        assert_eq!(c.run("OM.RANGESTORE matched big - + MATCH *7"), "50");
        server.crash();
        let mut c = server.client();
        assert_eq!(
            c.run("OM.RANGE src - +") + &c.run("OM.LEN matched") + &c.run("OM.LEN large"),
            "b50300",
            "{design}"
        );
        assert_eq!(c.run("EXISTS map none") + &c.run("OM.CHECK"), "0");
    }
}

#[test]
fn merge_writes_all_fields_of_its_sources() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET one a 1 b 1");
        c.run("OM.SET two b 2 c 2");
        c.run("OM.SET dst a 0 z 0");
        assert_eq!(c.run("OM.MERGE dst one missing two"), "2");
        assert_eq!(c.run("OM.RANGE dst - + WITHVALUES"), "a 1 b 2 c 2 z 0");
        assert_eq!(
            c.run("OM.MERGE dst dst") + &c.run("OM.MERGE fresh two one") + &c.run("OM.MERGE none missing"),
            "030"
        );
        let large: String = (0..500).map(|n| format!(" {n:04} v{n}")).collect();
        c.run(&format!("OM.SET big{large}"));
        assert_eq!(c.run("OM.MERGE dst big") + &c.run("OM.LEN dst"), "500504");
        server.crash();
        let mut c = server.client();
        assert_eq!(
            c.run("OM.LEN dst") + &c.run("OM.RANGE fresh - + WITHVALUES"),
            "504a 1 b 1 c 2",
            "{design}"
        );
        assert_eq!(c.run("EXISTS none") + &c.run("OM.CHECK"), "0");
    }
}

#[test]
fn replicas_and_files_have_what_several_maps_got() {
    let Some(master) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let Some(replica) = Server::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]) else {
        return;
    };
    replica.wait("it is synchronized", |c| c.run("INFO replication").contains("master_link_status:up"));
    let mut c = master.client();
    c.run("SET text 1");
    c.run("OM.SET one a 1 b 1");
    c.run("OM.SET two b 2.5 c 2");
    c.run("OM.RANGESTORE text one - +");
    c.run("OM.MERGE three one two");
    c.run("OM.RANGESTORE two two [c +");
    c.run("OM.INCRBYFLOAT one b 0.5");
    c.run("OM.GETDEL one a");
    c.run("SET gone 1");
    c.run("OM.RANGESTORE gone missing - +");
    let keys = ["text", "one", "two", "three", "gone"];
    let state = |c: &mut Client| keys.map(|key| c.run(&format!("OM.RANGE {key} - + WITHVALUES")));
    let expected = state(&mut c);
    assert_eq!(expected, ["a 1 b 1", "b 1.5", "c 2", "a 1 b 2.5 c 2", ""]);
    replica.wait("it has the same", |c| state(c) == expected);
    // Without its pool the server has what its file says.
    drop(c);
    let mut master = master;
    master.kill();
    std::fs::remove_file(master.pool()).unwrap();
    master.run();
    assert_eq!(state(&mut master.client()), expected);
    // With it, too: what the file says of maps is skipped.
    master.crash();
    assert_eq!(state(&mut master.client()), expected);
    assert_eq!(master.client().run("EXISTS gone"), "0");
}

fn ask(c: &mut Client, words: &str) {
    c.ask(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
}

/// Waits until this number of clients is blocked.
fn await_blocked(server: &Server, clients: usize) {
    let wanted = format!("blocked_clients:{clients}\r");
    server.wait("clients are blocked", |c| c.run("INFO clients").contains(&wanted));
}

#[test]
fn pops_wait_for_a_map() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut c, mut one, mut other) = (server.client(), server.client(), server.client());
    c.run("OM.SET b x 1 y 2");
    assert_eq!(c.run("OM.BPOPMIN a b 0") + " " + &c.run("OM.BPOPMAX a b 1.5"), "b x 1 b y 2");
    assert_eq!(c.run("EXISTS b"), "0");
    // They are served in the order in which they came.
    ask(&mut one, "OM.BPOPMIN a b 0");
    await_blocked(&server, 1);
    ask(&mut other, "OM.BPOPMAX b 0");
    await_blocked(&server, 2);
    c.run("OM.SET b p 1 q 2 r 3");
    assert_eq!(one.read().unwrap().text() + " " + &other.read().unwrap().text(), "b p 1 b r 3");
    assert_eq!(c.run("OM.RANGE b - +"), "q");
    // Other types under the name are none of their business, and maps may come in any way.
    for (come, key) in [
        ("RENAME b w", "w"),
        ("COPY b w", "w"),
        ("OM.MERGE w b", "w"),
        ("OM.RANGESTORE w b - +", "w"),
        ("OM.INCRBY w q 2", "w"),
    ] {
        c.run("DEL b w");
        c.run("OM.SET b q 2");
        ask(&mut one, "OM.BPOPMIN none w 0");
        await_blocked(&server, 1);
        c.run("SET w text");
        c.run("DEL w");
        c.run(come);
        assert_eq!(one.read().unwrap().text(), format!("{key} q 2"), "{come}");
        await_blocked(&server, 0);
        assert_eq!(c.run("EXISTS w"), "0");
    }
}

#[test]
fn pops_end_after_their_time_and_never_wait_in_groups() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut c, mut one) = (server.client(), server.client());
    let began = Instant::now();
    assert_eq!(c.send(&[b"OM.BPOPMIN", b"a", b"0.05"]).unwrap(), Reply::Null);
    assert!(began.elapsed() >= Duration::from_millis(50));
    c.run("MULTI");
    c.run("OM.BPOPMIN a 0");
    assert_eq!(c.run("EXEC"), "nil");
    let script = b"return redis.call('OM.BPOPMAX', 'a', 0)";
    assert_eq!(c.send(&[b"EVAL", script, b"0"]).unwrap(), Reply::Null);
    c.run("SET s text");
    assert!(c.run("OM.BPOPMIN a s 0").starts_with("WRONGTYPE"));
    for (timeout, why) in
        [("x", "not a float"), ("-1", "negative"), ("inf", "not a float"), ("1e300", "out of range")]
    {
        let reply = c.run(&format!("OM.BPOPMIN a {timeout}"));
        assert!(reply.starts_with("ERR") && reply.contains(why), "{timeout}: {reply}");
    }
    assert!(c.run("OM.BPOPMIN a").contains("wrong number"));
    // A client that is gone takes nothing.
    ask(&mut one, "OM.BPOPMIN q 0");
    await_blocked(&server, 1);
    drop(one);
    await_blocked(&server, 0);
    c.run("OM.SET q a 1");
    assert_eq!(c.run("OM.LEN q"), "1");
}

#[test]
fn what_a_waiting_client_popped_is_replicated_and_durable() {
    let Some(mut master) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let Some(replica) = Server::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]) else {
        return;
    };
    replica.wait("it is synchronized", |c| c.run("INFO replication").contains("master_link_status:up"));
    let (mut c, mut one) = (master.client(), master.client());
    ask(&mut one, "OM.BPOPMIN q 0");
    await_blocked(&master, 1);
    c.run("OM.SET q a 1 b 2");
    assert_eq!(one.read().unwrap().text(), "q a 1");
    ask(&mut one, "OM.BPOPMAX w 0");
    await_blocked(&master, 1);
    c.run("OM.SET w only 1");
    assert_eq!(one.read().unwrap().text(), "w only 1");
    replica.wait("it has the same", |c| c.run("OM.RANGE q - +") + &c.run("EXISTS w") == "b0");
    master.crash();
    assert_eq!(master.client().run("OM.RANGE q - +") + &master.client().run("EXISTS w"), "b0");
    master.kill();
    std::fs::remove_file(master.pool()).unwrap();
    master.run();
    assert_eq!(master.client().run("OM.RANGE q - +") + &master.client().run("EXISTS w"), "b0");
}
