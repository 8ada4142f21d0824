//! What the server says of the module, and replies in both protocols.

use crate::client::Reply;
use crate::server::Server;

#[test]
fn the_server_describes_commands_and_pool() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1 b 2");
    assert!(c.run("COMMAND DOCS om.set").contains("Writes fields of an ordered map"));
    let info = c.run("INFO bristlecone");
    assert!(info.contains("bristlecone_fields:2") && info.contains("bristlecone_maps:1"), "{info}");
    assert!(c.run("OM.INFO m").contains("fields 2"));
    assert_eq!(c.run("OM.INFO none"), "nil");
    assert_eq!(c.run("OM.CHECK"), "");
    assert!(c.run("MEMORY USAGE m").parse::<u64>().unwrap() > 0);
    assert!(
        c.run("COMMAND INFO om.set").contains(" write denyoom ")
            && c.run("COMMAND INFO om.range").contains(" readonly ")
    );
    c.run("ACL SETUSER reader on nopass ~m +om.get +om.range +auth");
    assert_eq!(c.run("AUTH reader none"), "OK");
    assert!(c.run("OM.SET m a 2").starts_with("NOPERM") && c.run("OM.GET other a").starts_with("NOPERM"));
    assert_eq!(c.run("OM.GET m a"), "1");
}

#[test]
fn each_command_has_docs_and_the_place_of_its_key() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for (command, arity, flags) in [
        ("OM.SET m a 1", "-4", "RW update"),
        ("OM.GET m a", "3", "RO access"),
        ("OM.MGET m a", "-3", "RO access"),
        ("OM.DEL m a", "-3", "RW delete"),
        ("OM.EXISTS m a", "3", "RO"),
        ("OM.LEN m", "2", "RO"),
        ("OM.INCRBY m a 1", "4", "RW access update"),
        ("OM.CAS m a 1 2", "-5", "RW access update"),
        ("OM.RANGE m - +", "-4", "RO access"),
        ("OM.DELRANGE m - +", "-4", "RW delete"),
        ("OM.POPMIN m", "-2", "RW access delete"),
        ("OM.POPMAX m", "-2", "RW access delete"),
        ("OM.SCAN m 0", "-3", "RO access"),
        ("OM.INFO m", "2", "RO"),
        ("OM.COUNT m - +", "-4", "RO"),
        ("OM.RANK m a", "-3", "RO"),
        ("OM.GETDEL m a", "3", "RW access delete"),
        ("OM.INCRBYFLOAT m a 1", "4", "RW access update"),
        ("OM.BPOPMIN m 0", "-3", "RW access delete"),
        ("OM.BPOPMAX m 0", "-3", "RW access delete"),
        ("OM.REPAIR m", "2", "RW access update"),
        ("OM.CHECK", "1", ""),
    ] {
        let name = command.split(' ').next().unwrap().to_lowercase();
        let docs = c.run(&format!("COMMAND DOCS {name}"));
        assert!(
            docs.contains("summary") && docs.contains("since 0.1.0") && docs.contains("complexity O("),
            "{docs}"
        );
        let info = c.run(&format!("COMMAND INFO {name}"));
        assert!(info.starts_with(&format!("{name} {arity} ")), "{info}");
        if flags.is_empty() {
            assert!(info.contains(" 0 0 0 "), "it has no key: {info}");
            continue;
        }
        assert_eq!(c.run(&format!("COMMAND GETKEYS {command}")), "m");
        assert_eq!(c.run(&format!("COMMAND GETKEYSANDFLAGS {command}")), format!("m {flags}"), "{command}");
    }
    for (command, keys) in [
        ("OM.RANGESTORE d s - +", "d OW update s RO access"),
        ("OM.MERGE d s t", "d RW insert s RO access t RO access"),
        ("OM.BPOPMIN a b 0", "a RW access delete b RW access delete"),
    ] {
        assert_eq!(c.run(&format!("COMMAND GETKEYSANDFLAGS {command}")), keys, "{command}");
    }
    let docs = c.run("COMMAND DOCS om.range");
    for part in [
        "arguments",
        "name key type key",
        "token LIMIT",
        "name offset type integer",
        "token MATCH",
        "pattern",
    ] {
        assert!(docs.contains(part), "{part}: {docs}");
    }
}

#[test]
fn commands_are_in_categories_where_a_module_can_say_so() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let (get, set) = (c.run("COMMAND INFO om.get"), c.run("COMMAND INFO om.set"));
    if c.run("INFO server").contains("redis_version:7.0.") {
        assert!(!get.contains('@') && !set.contains('@'), "{get}\n{set}");
        return;
    }
    assert!(get.contains("@read @fast") && set.contains("@write"), "{get}\n{set}");
    c.run("OM.SET m a 1");
    c.run("ACL SETUSER reader on nopass ~* +@read +auth");
    assert_eq!(c.run("AUTH reader none") + &c.run("OM.GET m a"), "OK1");
    assert!(c.run("OM.SET m a 2").starts_with("NOPERM"));
}

#[test]
fn replies_in_resp3_have_the_same_shapes() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    assert!(matches!(c.send(&[b"HELLO", b"3"]).unwrap(), Reply::Map(_)));
    let mut send = |words: &str| c.send(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
    assert_eq!(send("OM.SET m a 1 b 2"), Reply::Number(2));
    assert_eq!(send("OM.GET m a"), bytes("1"));
    assert_eq!(send("OM.GET m x"), Reply::Null3);
    assert_eq!(send("OM.GET none x"), Reply::Null3);
    assert_eq!(send("OM.MGET m a x"), Reply::Array(vec![bytes("1"), Reply::Null3]));
    let all = Reply::Array(vec![bytes("a"), bytes("1"), bytes("b"), bytes("2")]);
    assert_eq!(send("OM.RANGE m - + WITHVALUES"), all);
    assert_eq!(send("OM.RANGE none - +"), Reply::Array(vec![]));
    assert_eq!(send("OM.SCAN m 0"), Reply::Array(vec![bytes("0"), all]));
    let Reply::Map(info) = send("OM.INFO m") else { panic!("a map of RESP3") };
    assert_eq!(info[1], (bytes("fields"), Reply::Number(2)));
    assert_eq!(info[3], (bytes("encoding"), bytes("small")));
    assert!(matches!(info[4], (_, Reply::Number(40..200))), "{info:?}");
    assert_eq!(send("OM.INFO none"), Reply::Null3);
    assert_eq!(send("OM.POPMIN m"), Reply::Array(vec![bytes("a"), bytes("1")]));
    assert_eq!(send("OM.CAS m b 2 3"), Reply::Number(1));
    assert_eq!(send("OM.CHECK"), Reply::Array(vec![]));
    assert!(matches!(send("OM.INCRBY m b x"), Reply::Error(_)));
    // So has what a thread replies.
    let fields: String = (0..3000).map(|n| format!(" {n:05} {n}")).collect();
    send(&format!("OM.SET long{fields}"));
    let Reply::Array(items) = send("OM.RANGE long - + WITHVALUES") else { panic!("an array") };
    assert_eq!((items.len(), &items[5999]), (6000, &bytes("2999")));
}

#[test]
fn the_latency_monitor_is_told_of_long_commands() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let fields: String = (0..20_000).map(|n| format!(" {n:05} v")).collect();
    assert_eq!(c.run(&format!("OM.SET m{fields}")), "20000");
    assert_eq!(c.run("LATENCY LATEST"), "", "the monitor is off");
    c.run("CONFIG SET latency-monitor-threshold 1");
    c.run(&format!("OM.SET m{fields}"));
    c.run("OM.RANGE m - + LIMIT -1 WITHVALUES");
    c.run("OM.DELRANGE m - +");
    let latest = c.run("LATENCY LATEST");
    for event in ["om.set", "om.range-thread", "om.delrange"] {
        assert!(latest.contains(event), "{event}: {latest}");
    }
    assert!(!latest.contains("om.get"));
    c.run("CONFIG SET latency-monitor-threshold 1000000");
    c.run("LATENCY RESET");
    c.run(&format!("OM.SET m{fields}"));
    assert_eq!(c.run("LATENCY LATEST"), "", "nothing took so long");
}
