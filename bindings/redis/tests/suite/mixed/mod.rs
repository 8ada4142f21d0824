//! Maps and the server's own types under the same names, beside an append-only file, in servers that are killed again and again:
//! what is there afterwards is compared with a ledger outside the server.
//!
//! One client sends a command, a group in `MULTI`, a script, or a pipeline of these, and waits for the replies. Each restart
//! must show the ledger with what has a reply. What has none happened as a whole, or did not: no other value, nothing lost,
//! nothing back, nothing half done.

mod commands;
mod ledger;

use std::time::{Duration, SystemTime};

use crate::client::Client;
use crate::server::{DESIGNS, Server};
use commands::{Draw, Unit};
use ledger::Ledger;

/// Policies of the append-only file. A kill loses nothing that the server has written, with or without `fsync`.
const POLICIES: [&str; 3] = ["always", "everysec", NO_FILE];
/// There is no append-only file: a kill leaves the maps alone.
const NO_FILE: &str = "no file";

/// Sends commands until the server is killed. Returns those without a reply.
fn work(c: &mut Client, ledger: &mut Ledger, draw: &mut Draw, count: &mut u64) -> Vec<Unit> {
    loop {
        let Ok(units) = Unit::draw(c, ledger, draw, count) else { return Vec::new() };
        let requests: Vec<_> = units.iter().flat_map(Unit::requests).collect();
        let sent = c.ask_all(&requests);
        for (at, unit) in units.iter().enumerate() {
            if sent.is_err() || unit.read_replies(c, ledger).is_err() {
                return units[at..].to_vec();
            }
        }
    }
}

/// Returns what a server may hold: each of these units happened, or did not.
fn outcomes(ledger: &Ledger, open: &[Unit]) -> Vec<Ledger> {
    let mut outcomes = vec![ledger.clone()];
    for unit in open {
        let mut with = outcomes.clone();
        with.iter_mut().for_each(|ledger| unit.apply(ledger));
        outcomes.extend(with);
    }
    outcomes
}

/// Kills a server with `everysec` while no `fsync` runs: otherwise it replies before it writes, and a kill may lose what has a
/// reply. Returns whether that is certain.
fn kill_between_fsyncs(server: &mut Server, c: &mut Client) -> bool {
    let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    c.run("SELECT 9");
    loop {
        let began = second();
        // The first write of a second begins an `fsync`.
        c.run("SET written 1");
        if c.run("INFO persistence").contains("aof_pending_bio_fsync:0") {
            server.kill();
            return second() == began;
        }
    }
}

/// Kills a server so often. Returns how often it was compared with the ledger, and how many commands were sent.
fn kill_often(policy: &str, design: &str, lives: u64, seed: u64) -> Option<(u64, u64)> {
    let has_file = policy != NO_FILE;
    let of_file = ["--appendonly", "yes", "--appendfsync", policy];
    let arguments = if has_file { &of_file[..] } else { &[] };
    let mut server = Server::start_with(&format!("max-bytes 256mb design {design}"), arguments)?;
    let (mut ledger, mut draw, mut count, mut compared) = (Ledger::default(), Draw(seed * 2 + 1), 0, 0);
    for life in 0..lives {
        let (mut client, mut killer) = (server.client(), server.client());
        if draw.below(8) == 0 && has_file {
            client.run("BGREWRITEAOF");
        }
        let lives_for = Duration::from_micros(draw.below(20_000));
        let mut is_certain = true;
        let open = std::thread::scope(|scope| {
            let working = scope.spawn(|| work(&mut client, &mut ledger, &mut draw, &mut count));
            std::thread::sleep(lives_for);
            if policy == "everysec" {
                is_certain = kill_between_fsyncs(&mut server, &mut killer);
            } else {
                server.kill();
            }
            working.join().unwrap()
        });
        server.run();
        let found = Ledger::read(&mut server.client());
        let mut may_be = outcomes(&ledger, &open);
        if !has_file {
            may_be.iter_mut().for_each(Ledger::keep_maps);
        }
        assert!(
            !is_certain || may_be.contains(&found),
            "{design}, {policy}, life {life} of seed {seed}, open: {open:?}\nfound {found:?}\nledger {ledger:?}\n{}",
            server.log().lines().rev().take(40).collect::<Vec<_>>().join("\n")
        );
        compared += u64::from(is_certain);
        ledger = found;
    }
    assert_eq!(server.client().run("OM.CHECK"), "");
    Some((compared, count))
}

/// Some lives, or as many in all as `BRISTLECONE_REDIS_ROUNDS` says, over designs and policies.
#[test]
fn names_of_all_types_survive_kills_beside_an_append_only_file() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (lives, seed) =
        (number("BRISTLECONE_REDIS_ROUNDS").unwrap_or(100), number("BRISTLECONE_SEED").unwrap_or(1));
    let each = lives / (DESIGNS.len() * POLICIES.len()) as u64;
    for (design, policy) in DESIGNS.into_iter().flat_map(|design| POLICIES.map(|policy| (design, policy))) {
        let Some((compared, count)) = kill_often(policy, design, each, seed) else { return };
        println!("{design}, {policy}: {each} kills, {compared} compared, {count} commands");
        assert!(count >= each && compared * 2 >= each, "{design}: {count} commands in {each} lives");
    }
}
