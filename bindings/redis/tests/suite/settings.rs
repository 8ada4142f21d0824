//! What `CONFIG SET` changes.

use crate::client::Client;
use crate::server::{DESIGNS, Server};

/// Writes values of 100 KB until there is no room. Returns how many.
fn fill(c: &mut Client, map: &str) -> u64 {
    let mut written = 0;
    loop {
        let field = format!("{written:06}");
        let reply = c.send(&[b"OM.SET", map.as_bytes(), field.as_bytes(), &[b'v'; 100_000]]).unwrap().text();
        if reply.starts_with("OOM") {
            return written;
        }
        assert_eq!(reply, "1");
        written += 1;
        assert!(written < 10_000);
    }
}

fn max_bytes(c: &mut Client) -> u64 {
    let info = c.run("INFO bristlecone");
    let line = info.lines().find_map(|line| line.strip_prefix("bristlecone_max_bytes:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn max_bytes_is_moved_while_the_server_serves() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 64mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        assert_eq!(c.run("CONFIG GET bristlecone.max-bytes"), "bristlecone.max-bytes 67108864");
        let first = fill(&mut c, "m");
        assert!((10..640).contains(&first), "{design}: {first}");
        let before = max_bytes(&mut c);
        assert_eq!(c.run("CONFIG SET bristlecone.max-bytes 112mb"), "OK");
        assert_eq!(max_bytes(&mut c), before + (48 << 20));
        let second = fill(&mut c, "n");
        assert!(second > 200, "{design}: {second}");
        // Below the size of the pool: nothing is lost, and only writes are refused.
        assert_eq!(c.run("CONFIG SET bristlecone.max-bytes 1mb"), "OK");
        assert_eq!(c.run("OM.LEN n") + " " + &c.run("OM.DEL n 000000"), format!("{second} 1"));
        for (value, why) in
            [("0", "between"), ("many", "memory value"), ("1000000gb", "maximum of this pool")]
        {
            let reply = c.run(&format!("CONFIG SET bristlecone.max-bytes {value}"));
            assert!(reply.starts_with("ERR") && reply.contains(why), "{value}: {reply}");
        }
        assert_eq!(c.run("CONFIG GET bristlecone.max-bytes"), "bristlecone.max-bytes 1048576");
        // A start takes what its arguments say.
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("CONFIG GET bristlecone.max-bytes"), "bristlecone.max-bytes 67108864");
        assert_eq!(
            c.run("OM.LEN m") + " " + &c.run("OM.LEN n"),
            format!("{first} {}", second - 1),
            "{design}"
        );
        assert_eq!(c.run("OM.CHECK"), "");
    }
}

#[test]
fn max_bytes_of_the_configuration_stands_for_the_argument() {
    let Some(mut server) = Server::prepare("max-bytes 64mb", &[]) else { return };
    let config = server.dir.join("redis.conf");
    let lines = format!(
        "loadmodule {} pool {} max-bytes 64mb\nbristlecone.max-bytes 96mb\n",
        crate::server::module().display(),
        server.pool().display()
    );
    std::fs::write(&config, lines).unwrap();
    server.config = Some(config.clone());
    server.run();
    let mut c = server.client();
    assert_eq!(c.run("CONFIG GET bristlecone.max-bytes"), "bristlecone.max-bytes 100663296");
    assert_eq!(c.run("CONFIG SET bristlecone.max-bytes 80mb") + &c.run("CONFIG REWRITE"), "OKOK");
    assert!(std::fs::read_to_string(&config).unwrap().contains("bristlecone.max-bytes 80mb"));
    server.crash();
    assert_eq!(server.client().run("CONFIG GET bristlecone.max-bytes"), "bristlecone.max-bytes 83886080");
}
