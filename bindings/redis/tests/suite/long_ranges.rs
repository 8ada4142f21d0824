//! Ranges that a thread reads: their results, and that the server serves others meanwhile.

use crate::client::{Client, Reply};
use crate::server::Server;

fn fill(c: &mut Client, fields: usize, value: &str) {
    for first in (0..fields).step_by(1000) {
        let items: String = (first..fields.min(first + 1000)).map(|n| format!(" {n:07} {value}")).collect();
        c.run(&format!("OM.SET m{items}"));
    }
}

fn items(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(items) => items,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_range_returns_what_a_short_one_would() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c, 5000, "v");
    let all: Vec<String> = (0..5000).map(|n| format!("{n:07}")).collect();
    for limit in [0, 1, 999, 1000, 1001, 1002, 2500, 5000, 5001, -1] {
        for (first, last) in [(0, 4999), (17, 3000), (4000, 4999)] {
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            let forward: Vec<&str> = all[first..=last].iter().take(most).map(String::as_str).collect();
            let command = format!("OM.RANGE m [{first:07} [{last:07} LIMIT {limit}");
            assert!(c.run(&command) == forward.join(" "), "{command}");
            let backward: Vec<&str> = all[first..=last].iter().rev().take(most).map(String::as_str).collect();
            let command = format!("OM.RANGE m [{last:07} [{first:07} REV LIMIT {limit}");
            assert!(c.run(&command) == backward.join(" "), "{command}");
        }
    }
    // Where a client cannot be blocked, the command reads the range itself.
    let script = b"return #redis.call('OM.RANGE', 'm', '-', '+', 'WITHVALUES')";
    assert_eq!(c.send(&[b"EVAL", script, b"1", b"m"]).unwrap(), Reply::Number(10_000));
    c.run("MULTI");
    c.run("OM.RANGE m - +");
    c.run("OM.SET m 0000000 changed");
    c.run("OM.RANGE m + - REV WITHVALUES");
    let replies = items(c.send(&[b"EXEC"]).unwrap());
    assert_eq!(items(replies[0].clone()).len(), 5000);
    let last = items(replies[2].clone()).pop().unwrap();
    assert_eq!(last.text(), "changed");
}

#[test]
fn the_server_serves_others_during_a_long_range() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut c, mut long) = (server.client(), server.client());
    fill(&mut c, 200_000, "old");
    let mut seen = false;
    for round in 0..100 {
        long.ask(&[b"OM.RANGE", b"m", b"-", b"+", b"LIMIT", b"-1", b"WITHVALUES"]).unwrap();
        // The list is itself a command that is carried out meanwhile, if it shows a client that is blocked.
        let blocked = |c: &mut Client| {
            c.run("CLIENT LIST")
                .lines()
                .any(|line| line.contains(" flags=b ") && line.contains("cmd=om.range"))
        };
        let before = blocked(&mut c);
        let field = format!("new{round}");
        assert_eq!(c.run("PING") + &c.run(&format!("OM.SET m {field} new 0199999 new{round}")), "PONG1");
        let during = before && blocked(&mut c);
        let reply = items(long.read().unwrap());
        if during {
            // The snapshot is older than what was written meanwhile.
            assert_eq!(reply.len(), 2 * (200_000 + round));
            assert_eq!(
                reply[399_999].text(),
                if round == 0 { "old".to_owned() } else { format!("new{}", round - 1) }
            );
            seen = true;
            break;
        }
    }
    assert!(seen, "a range of 200,000 fields was never seen running");
    assert_eq!(c.run("OM.CHECK"), "");
}

#[test]
fn clients_that_leave_or_do_not_read_harm_no_other() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c, 2000, &"x".repeat(20_000));
    for _ in 0..20 {
        let mut leaving = server.client();
        leaving.ask(&[b"OM.RANGE", b"m", b"-", b"+", b"WITHVALUES"]).unwrap();
        drop(leaving);
        assert_eq!(c.run("PING"), "PONG");
    }
    // 40 MB that nothing reads are kept in pieces.
    let mut idle = server.client();
    idle.ask(&[b"OM.RANGE", b"m", b"-", b"+", b"WITHVALUES"]).unwrap();
    server.wait("the reply is kept in pieces", |c| {
        let list = c.run("CLIENT LIST");
        let number = |line: &str, name: &str| -> u64 {
            line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap().parse().unwrap()
        };
        list.lines().any(|line| number(line, "oll=") > 200 && number(line, "omem=") > 10_000_000)
    });
    assert_eq!(items(idle.read().unwrap()).len(), 4000);
    // Where the server limits what it keeps, it closes the connection, and no other.
    assert_eq!(
        c.send(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 1mb 1mb 0"]).unwrap().text(),
        "OK"
    );
    assert!(idle.send(&[b"OM.RANGE", b"m", b"-", b"+", b"WITHVALUES"]).is_err());
    assert_eq!(c.run("PING") + &c.run("OM.LEN m") + &c.run("OM.CHECK"), "PONG2000");
}
