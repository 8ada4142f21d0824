//! Every command, with right input.

use crate::client::Reply;
use crate::server::Server;

#[test]
fn fields_are_written_read_and_removed() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    assert_eq!(c.run("OM.SET m b 2 a 1 c 3"), "3");
    assert_eq!(c.run("OM.SET m b 22 d 4"), "1");
    assert_eq!(c.run("OM.GET m b"), "22");
    assert_eq!(c.run("OM.GET m x"), "nil");
    assert_eq!(c.run("OM.GET none x"), "nil");
    assert_eq!(c.run("OM.MGET m d x a a"), "4 nil 1 1");
    assert_eq!(c.run("OM.MGET none d x"), "nil nil");
    assert_eq!(c.run("OM.EXISTS m a") + &c.run("OM.EXISTS m x") + &c.run("OM.EXISTS none a"), "100");
    assert_eq!(c.run("OM.LEN m"), "4");
    assert_eq!(c.run("OM.DEL m a x a d"), "2");
    assert_eq!(c.run("OM.RANGE m - +"), "b c");
    assert_eq!(c.run("OM.DEL m b c"), "2");
    assert_eq!(c.run("EXISTS m") + &c.run("OM.LEN m") + &c.run("OM.DEL m b"), "000");
    assert_eq!(c.run("TYPE m"), "none");
    assert_eq!(c.run("OM.SET m a 1 a 2"), "1");
    assert_eq!(c.run("OM.GET m a") + &c.run("OM.LEN m"), "21");
    assert_eq!(c.run("TYPE m"), "bristlmap");
}

#[test]
fn conditions_write_all_or_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    assert_eq!(c.run("OM.SET m a 1 XX"), "0");
    assert_eq!(c.run("EXISTS m"), "0");
    assert_eq!(c.run("OM.SET m a 1 NX"), "1");
    assert_eq!(c.run("OM.SET m a 9 b 2 nx"), "0");
    assert_eq!(c.run("OM.SET m a 9 b 2 XX"), "0");
    assert_eq!(c.run("OM.MGET m a b"), "1 nil");
    assert_eq!(c.run("OM.SET m a 3 xx"), "1");
    assert_eq!(c.run("OM.SET m NX XX"), "1");
    assert_eq!(c.run("OM.MGET m a NX"), "3 XX");
    assert_eq!(c.run("OM.CAS m a 3 4") + &c.run("OM.CAS m a 3 5") + &c.run("OM.CAS m x 3 5"), "100");
    assert_eq!(c.run("OM.GET m a"), "4");
    assert_eq!(c.run("OM.INCRBY m n 5") + &c.run("OM.INCRBY m n -7"), "5-2");
    assert_eq!(c.run("OM.INCRBY m a 1"), "5");
}

#[test]
fn ranges_have_the_bounds_of_zrange() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for field in ["a", "aa", "b", "c", "d"] {
        c.run(&format!("OM.SET m {field} v{field}"));
        c.run(&format!("OM.SET n {field} other"));
        c.run(&format!("ZADD z 0 {field}"));
    }
    for (min, max) in [
        ("-", "+"),
        ("[a", "[c"),
        ("(a", "(c"),
        ("[a", "[a"),
        ("(a", "[a"),
        ("[c", "[a"),
        ("+", "-"),
        ("-", "(aa"),
        ("[", "[b"),
        ("(d", "+"),
        ("(b", "(b"),
        ("+", "+"),
        ("-", "-"),
    ] {
        let range = format!("{min} {max}");
        assert_eq!(
            c.run(&format!("OM.RANGE m {range}")),
            c.run(&format!("ZRANGE z {range} BYLEX")),
            "{range}"
        );
        let range = format!("{max} {min}");
        assert_eq!(
            c.run(&format!("OM.RANGE m {range} BYLEX REV")),
            c.run(&format!("ZRANGE z {range} BYLEX REV")),
            "{range}"
        );
    }
    assert_eq!(c.run("OM.RANGE m [aa + LIMIT 2 WITHVALUES"), "aa vaa b vb");
    assert_eq!(c.run("OM.RANGE m + - REV LIMIT 1 WITHVALUES"), "d vd");
    assert_eq!(c.run("OM.RANGE m - + LIMIT 0"), "");
    assert_eq!(c.run("OM.RANGE none - +"), "");
    assert_eq!(c.run("OM.DELRANGE m [aa (d LIMIT 2") + &c.run("OM.RANGE m - +"), "2a c d");
    assert_eq!(c.run("OM.DELRANGE m (d +"), "0");
    assert_eq!(c.run("OM.DELRANGE m - +") + &c.run("EXISTS m") + &c.run("OM.LEN n"), "305");
    assert_eq!(c.run("OM.POPMIN n") + &c.run("OM.POPMAX n 2"), "a otherd other c other");
    assert_eq!(c.run("OM.POPMIN n 0"), "");
    assert_eq!(c.run("OM.POPMAX n 100") + &c.run("EXISTS n") + &c.run("OM.POPMIN n"), "b other aa other0");
}

#[test]
fn range_without_a_limit_returns_ten_thousand() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for first in (0..12_000).step_by(500) {
        let fields: String = (first..first + 500).map(|n| format!(" {n:06} {n}")).collect();
        assert_eq!(c.run(&format!("OM.SET m{fields}")), "500");
    }
    let len = |reply: Reply| match reply {
        Reply::Array(items) => items.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(len(c.send(&[b"OM.RANGE", b"m", b"-", b"+"]).unwrap()), 10_000);
    assert_eq!(len(c.send(&[b"OM.RANGE", b"m", b"-", b"+", b"LIMIT", b"-1"]).unwrap()), 12_000);
    assert_eq!(c.run("OM.LEN m"), "12000");
    let (mut cursor, mut seen) = (b"0".to_vec(), 0);
    loop {
        let Reply::Array(reply) = c.send(&[b"OM.SCAN", b"m", &cursor, b"COUNT", b"777"]).unwrap() else {
            panic!()
        };
        let [Reply::Bytes(next), Reply::Array(items)] = &reply[..] else { panic!("{reply:?}") };
        assert_eq!(items[0], Reply::Bytes(format!("{seen:06}").into_bytes()));
        seen += items.len() / 2;
        cursor = next.clone();
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(seen, 12_000);
}

#[test]
fn fields_and_values_are_any_bytes() {
    let Some(mut server) = Server::start(&[]) else { return };
    let fields: Vec<Vec<u8>> = (0..=255u8)
        .map(|byte| vec![byte])
        .chain([vec![], vec![0; 16_376], vec![255; 100], b"a\r\nb\0".to_vec()])
        .collect();
    let value = vec![7u8; 128 << 10];
    for round in 0..2 {
        let mut c = server.client();
        for (at, field) in fields.iter().enumerate() {
            let value = &value[..(at * 523).min(value.len())];
            if round == 0 {
                assert_eq!(c.send(&[b"OM.SET", b"k\0\xff", field, value]).unwrap(), Reply::Number(1));
            }
            assert_eq!(c.send(&[b"OM.GET", b"k\0\xff", field]).unwrap(), Reply::Bytes(value.to_vec()));
        }
        let mut sorted = fields.clone();
        sorted.sort();
        let range = c.send(&[b"OM.RANGE", b"k\0\xff", b"-", b"+"]).unwrap();
        assert_eq!(range, Reply::Array(sorted.into_iter().map(Reply::Bytes).collect()));
        server.crash();
    }
}

#[test]
fn multi_and_scripts_work_as_with_any_type() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for (command, reply) in [
        ("MULTI", "OK"),
        ("OM.SET m a 1", "QUEUED"),
        ("OM.INCRBY m a x", "QUEUED"),
        ("SET s 1", "QUEUED"),
        ("OM.SET s a 1", "QUEUED"),
        ("OM.INCRBY m a 2", "QUEUED"),
    ] {
        assert_eq!(c.run(command), reply);
    }
    let Reply::Array(replies) = c.send(&[b"EXEC"]).unwrap() else { panic!() };
    assert_eq!((replies[0].text(), replies[4].text()), ("1".into(), "3".into()));
    assert!(matches!(&replies[1], Reply::Error(why) if why.contains("not an integer")), "{replies:?}");
    assert!(matches!(&replies[3], Reply::Error(why) if why.starts_with("WRONGTYPE")), "{replies:?}");
    let script = b"redis.call('OM.SET', KEYS[1], 'b', ARGV[1]); return redis.call('OM.RANGE', KEYS[1], '-', '+', 'WITHVALUES')";
    let reply = c.send(&[b"EVAL", script, b"1", b"m", b"5"]).unwrap();
    assert_eq!(reply.text(), "a 3 b 5");
    let failing =
        b"redis.call('OM.SET', KEYS[1], 'c', '1'); return redis.call('OM.INCRBY', KEYS[1], 'c', 'no')";
    assert!(matches!(c.send(&[b"EVAL", failing, b"1", b"m"]).unwrap(), Reply::Error(_)));
    server.crash();
    assert_eq!(server.client().run("OM.RANGE m - + WITHVALUES"), "a 3 b 5 c 1");
}
