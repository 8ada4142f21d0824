//! Prefixes, patterns, limits with offsets, counts and ranks, beside the sorted sets of the same server.

use crate::client::{Client, Reply};
use crate::server::{DESIGNS, Server};

/// Writes fields into map `m` and into sorted set `z`, and returns them in order.
fn fill(c: &mut Client, fields: usize) -> Vec<String> {
    let fields: Vec<String> = (0..fields).map(|n| format!("{}:{n:05}", ["aa", "ab", "b"][n % 3])).collect();
    for some in fields.chunks(500) {
        let words: Vec<String> = some.iter().map(|field| format!("{field} v{field}")).collect();
        c.run(&format!("OM.SET m {}", words.join(" ")));
        let words: Vec<String> = some.iter().map(|field| format!("0 {field}")).collect();
        c.run(&format!("ZADD z {}", words.join(" ")));
    }
    let mut sorted = fields;
    sorted.sort();
    sorted
}

#[test]
fn ranges_limits_and_counts_are_those_of_sorted_sets() {
    for design in DESIGNS {
        let Some(server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        // A small map, a large one, and one whose ranges a thread reads.
        for fields in [7, 300, 4000] {
            c.run("FLUSHALL");
            let all = fill(&mut c, fields);
            let edges = ["-", "+", "[aa:00003", "(aa:00003", "[ab", "(b:00002", "[zz"];
            for (min, max) in edges.iter().flat_map(|min| edges.iter().map(move |max| (min, max))) {
                let counted = c.run(&format!("ZLEXCOUNT z {min} {max}"));
                assert_eq!(c.run(&format!("OM.COUNT m {min} {max}")), counted, "{design} {min} {max}");
                for limit in ["LIMIT 0 3", "LIMIT 2 5", "LIMIT 5 -1", "LIMIT 100000 5", "LIMIT 3 0"] {
                    let ours = c.run(&format!("OM.RANGE m {min} {max} BYLEX {limit}"));
                    assert!(
                        ours == c.run(&format!("ZRANGE z {min} {max} BYLEX {limit}")),
                        "{min} {max} {limit}"
                    );
                    let ours = c.run(&format!("OM.RANGE m {max} {min} BYLEX REV {limit}"));
                    assert!(
                        ours == c.run(&format!("ZRANGE z {max} {min} BYLEX REV {limit}")),
                        "{max} {min} {limit}"
                    );
                }
            }
            for field in all.iter().step_by(1 + fields / 50) {
                assert_eq!(
                    c.run(&format!("OM.RANK m {field}")),
                    c.run(&format!("ZRANK z {field}")),
                    "{field}"
                );
                let ours = c.run(&format!("OM.RANK m {field} rev"));
                assert_eq!(ours, c.run(&format!("ZREVRANK z {field}")), "{field}");
            }
            assert_eq!(
                c.run("OM.RANK m none") + &c.run("OM.RANK none a") + &c.run("OM.COUNT none - +"),
                "nilnil0"
            );
        }
    }
}

#[test]
fn prefixes_and_patterns_select_fields() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for fields in [7, 4000] {
        c.run("FLUSHALL");
        let all = fill(&mut c, fields);
        let begin =
            |prefix: &str| all.iter().filter(|field| field.starts_with(prefix)).cloned().collect::<Vec<_>>();
        for prefix in ["a", "aa", "ab:0000", "b:00002", "c"] {
            let expected = begin(prefix);
            assert!(c.run(&format!("OM.RANGE m PREFIX {prefix}")) == expected.join(" "), "{prefix}");
            let mut reversed = expected.clone();
            reversed.reverse();
            assert!(c.run(&format!("OM.RANGE m prefix {prefix} REV")) == reversed.join(" "), "{prefix}");
            assert_eq!(c.run(&format!("OM.COUNT m PREFIX {prefix}")), expected.len().to_string());
        }
        let ends: Vec<String> = all.iter().filter(|field| field.ends_with('3')).cloned().collect();
        assert!(c.run("OM.RANGE m - + MATCH *3") == ends.join(" "));
        assert!(
            c.run("OM.RANGE m - + MATCH *3 LIMIT 1 3")
                == ends[1.min(ends.len())..4.min(ends.len())].join(" ")
        );
        assert_eq!(c.run("OM.COUNT m - + MATCH *3"), ends.len().to_string());
        let of_ab: Vec<String> = ends.iter().filter(|field| field.starts_with("ab")).cloned().collect();
        assert!(c.run("OM.RANGE m [aa +  MATCH ab*3".replace("  ", " ").as_str()) == of_ab.join(" "));
        assert!(c.run("OM.RANGE m PREFIX ab MATCH *3") == of_ab.join(" "));
        assert_eq!(c.run("OM.RANGE m PREFIX b MATCH ab*"), "");
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let Reply::Array(reply) =
                c.send(&[b"OM.SCAN", b"m", cursor.as_bytes(), b"MATCH", b"ab*3", b"COUNT", b"100"]).unwrap()
            else {
                panic!()
            };
            let Reply::Array(items) = &reply[1] else { panic!() };
            found.extend(items.iter().step_by(2).map(Reply::text));
            cursor = reply[0].text();
            if cursor == "0" {
                break;
            }
        }
        assert!(found == of_ab);
        // A call looks at a thousand fields, whatever it is asked for.
        let Reply::Array(reply) = c.send(&[b"OM.SCAN", b"m", b"0", b"COUNT", b"1000000"]).unwrap() else {
            panic!()
        };
        let Reply::Array(items) = &reply[1] else { panic!() };
        assert_eq!(items.len(), 2 * fields.min(1000));
        assert_eq!(
            c.run("OM.DELRANGE m PREFIX ab MATCH *3 LIMIT 1 2"),
            of_ab.len().saturating_sub(1).min(2).to_string()
        );
        let left = of_ab.len() - of_ab.len().saturating_sub(1).min(2);
        assert_eq!(c.run("OM.COUNT m PREFIX ab MATCH *3"), left.to_string());
        assert_eq!(c.run("OM.DELRANGE m PREFIX b"), begin("b").len().to_string());
        assert_eq!(c.run("OM.COUNT m PREFIX b"), "0");
    }
}

#[test]
fn a_prefix_may_be_any_bytes() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for field in [b"\xff".as_slice(), b"\xff\xff", b"\xfe", b"\xff\xff\0", b""] {
        c.send(&[b"OM.SET", b"m", field, b"v"]).unwrap();
    }
    let count =
        |c: &mut Client, prefix: &[u8]| c.send(&[b"OM.COUNT", b"m", b"PREFIX", prefix]).unwrap().text();
    assert_eq!(
        count(&mut c, b"") + &count(&mut c, b"\xff") + &count(&mut c, b"\xff\xff") + &count(&mut c, b"\xfe"),
        "5321"
    );
}

#[test]
fn long_counts_and_ranks_do_not_stop_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut c, mut long) = (server.client(), server.client());
    for first in (0..60_000).step_by(1000) {
        let items: String = (first..first + 1000).map(|n| format!(" {n:07} v")).collect();
        c.run(&format!("OM.SET m{items}"));
    }
    let mut is_seen = false;
    for _ in 0..200 {
        long.ask(&[b"OM.COUNT", b"m", b"-", b"+", b"MATCH", b"*7"]).unwrap();
        let clients = c.run("CLIENT LIST");
        is_seen |= clients.lines().any(|line| line.contains("cmd=om.count") && line.contains("flags=b"));
        assert_eq!(long.read().unwrap(), Reply::Number(6000));
    }
    assert!(is_seen, "another client is served while a thread counts");
    assert_eq!(c.run("OM.RANK m 0059999") + " " + &c.run("OM.RANK m 0000000 REV"), "59999 59999");
    // Where a client cannot be blocked, the command counts itself.
    c.run("MULTI");
    c.run("OM.COUNT m - +");
    c.run("OM.RANK m 0040000");
    assert_eq!(c.run("EXEC"), "60000 40000");
}
