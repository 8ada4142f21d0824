//! The commands: arbitrary ones, alone, in `MULTI`, in scripts, and several in a pipeline.

use super::ledger::{DATABASES, Expires, Held, Ledger};
use crate::client::{Client, Reply};

const NAMES: u64 = 6;

/// Runs the commands of a script, whose words follow their number. A command that fails does not end the script.
const SCRIPT: &str = "local at = 1 while at <= #ARGV do local n = tonumber(ARGV[at]) \
                      redis.pcall(unpack(ARGV, at + 1, at + n)) at = at + n + 1 end return 'done'";

/// Arbitrary numbers, the same for the same seed.
pub struct Draw(pub u64);

impl Draw {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % end
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(NAMES))
    }

    fn database(&mut self) -> u64 {
        self.below(DATABASES as u64)
    }
}

/// A single command.
#[derive(Clone, Debug)]
pub enum Step {
    Words(Vec<String>),
    /// `RESTORE` of what another name had.
    Restore {
        to: String,
        held: Held,
        packed: Vec<u8>,
        replace: bool,
    },
}

impl Step {
    fn words(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Words(words) => words.iter().map(|word| word.clone().into_bytes()).collect(),
            Self::Restore { to, held, packed, replace } => {
                let time = if let Expires::At(time) = held.expires { time } else { 0 };
                let words = ["RESTORE", to, &time.to_string()].map(|word| word.as_bytes().to_vec());
                let mut words = Vec::from(words);
                words.extend([packed.clone(), b"ABSTTL".to_vec()]);
                words.extend(replace.then(|| b"REPLACE".to_vec()));
                words
            }
        }
    }
}

/// How steps are sent. In `MULTI` and in a script all of them happen, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Alone,
    Multi,
    Script,
}

/// Steps that happen together.
#[derive(Clone, Debug)]
pub struct Unit {
    db: usize,
    how: How,
    steps: Vec<Step>,
}

impl Unit {
    /// Returns arbitrary units for a pipeline, mostly one. An error: the server is gone.
    pub fn draw(
        c: &mut Client,
        ledger: &Ledger,
        draw: &mut Draw,
        count: &mut u64,
    ) -> std::io::Result<Vec<Self>> {
        let db = draw.database() as usize;
        c.send(&[b"SELECT", db.to_string().as_bytes()])?;
        let units = if draw.below(6) == 0 { 2 + draw.below(3) } else { 1 };
        let mut drawn = Vec::new();
        for _ in 0..units {
            let (how, steps) = match draw.below(5) {
                0 => (How::Multi, 1 + draw.below(4)),
                1 => (How::Script, 1 + draw.below(4)),
                _ => (How::Alone, 1),
            };
            let steps: std::io::Result<Vec<Step>> = (0..steps)
                .map(|_| {
                    *count += 1;
                    step(c, ledger, db, draw, *count)
                })
                .collect();
            drawn.push(Self { db, how, steps: steps? });
        }
        Ok(drawn)
    }

    /// Applies the steps to a ledger.
    pub fn apply(&self, ledger: &mut Ledger) {
        self.steps.iter().for_each(|step| _ = step_by(ledger, self.db, step));
    }

    /// Returns the requests that it is sent as.
    pub fn requests(&self) -> Vec<Vec<Vec<u8>>> {
        let words = self.steps.iter().map(Step::words);
        match self.how {
            How::Alone => words.collect(),
            How::Multi => {
                let before = vec![b"MULTI".to_vec()];
                std::iter::once(before).chain(words).chain([vec![b"EXEC".to_vec()]]).collect()
            }
            How::Script => {
                let mut script = vec![b"EVAL".to_vec(), SCRIPT.as_bytes().to_vec(), b"0".to_vec()];
                for words in words {
                    script.push(words.len().to_string().into_bytes());
                    script.extend(words);
                }
                vec![script]
            }
        }
    }

    /// Reads the replies, and compares them with what the ledger says. An error: the server is gone.
    pub fn read_replies(&self, c: &mut Client, ledger: &mut Ledger) -> std::io::Result<()> {
        let mut last = Reply::Null;
        for _ in self.requests() {
            last = c.read()?;
        }
        let replies = match (self.how, last) {
            (How::Alone, reply) => vec![reply],
            (How::Multi, Reply::Array(replies)) => replies,
            (How::Script, reply) => {
                assert_eq!(reply.text(), "done");
                self.apply(ledger);
                return Ok(());
            }
            (_, reply) => panic!("{self:?}: {reply:?}"),
        };
        for (step, reply) in self.steps.iter().zip(replies) {
            let before = ledger.clone();
            let may = step_by(ledger, self.db, step).is_some() && *ledger != before;
            let is_refused = matches!(reply, Reply::Error(_));
            assert!(!(may && is_refused), "{step:?}: {reply:?} of {before:?}");
        }
        Ok(())
    }
}

/// Does what a step does, or nothing.
fn step_by(ledger: &mut Ledger, db: usize, step: &Step) -> Option<()> {
    let mut after = ledger.clone();
    after.apply(db, step)?;
    *ledger = after;
    Some(())
}

fn step(c: &mut Client, ledger: &Ledger, db: usize, draw: &mut Draw, count: u64) -> std::io::Result<Step> {
    let (one, other) = (draw.name(), draw.name());
    if draw.below(12) == 0
        && let Some(held) = ledger.get(db, &one)
        && held.expires != Expires::Late
        && let Reply::Bytes(packed) = c.send(&[b"DUMP", one.as_bytes()])?
    {
        return Ok(Step::Restore { to: other, held: held.clone(), packed, replace: draw.below(2) == 0 });
    }
    let text = text(draw, &one, &other, count);
    Ok(Step::Words(text.split(' ').map(str::to_owned).collect()))
}

fn text(draw: &mut Draw, one: &str, other: &str, count: u64) -> String {
    let field = format!("f{}", draw.below(3));
    let later = 4_000_000_000_000 + count;
    // Small maps grow to large ones.
    let long = if count.is_multiple_of(3) { "y".repeat(300) } else { String::new() };
    match draw.below(64) {
        0..=7 => format!("OM.SET {one} {field} v{count}{long}"),
        8..=9 => format!("OM.SET {one} f0 v{count} f1 w{count} f2 x{count}"),
        10 => format!("OM.SET {one} {field} v{count} NX"),
        11..=12 => format!("OM.DEL {one} {field}"),
        13 => format!("OM.DELRANGE {one} - +"),
        14..=15 => format!("OM.POPMIN {one}"),
        16 => format!("OM.CAS {one} {field} IFABSENT SET c{count}{long}"),
        17..=18 => format!("SET {one} v{count}"),
        19..=20 => format!("SET {one} v{count} NX"),
        21 => format!("SET {one} v{count} GET"),
        22 => format!("APPEND {one} v{count}"),
        23 => format!("GETDEL {one}"),
        24 => format!("LPUSH {one} v{count}"),
        25 => format!("LPOP {one}"),
        26 => format!("HSET {one} {field} v{count}"),
        27..=28 => format!("SADD {one} v{count}"),
        29 => format!("ZADD {one} 1 v{count}"),
        30..=31 => format!("SUNIONSTORE {one} {other} {}", draw.name()),
        32 => format!("DEL {one}"),
        33 => format!("UNLINK {one}"),
        34..=35 => format!("DEL {one} {other}"),
        36..=39 => format!("RENAME {one} {other}"),
        40..=41 => format!("RENAMENX {one} {other}"),
        42..=45 => format!("COPY {one} {other} DB {} REPLACE", draw.database()),
        46..=47 => format!("COPY {one} {other} DB {}", draw.database()),
        48..=51 => format!("MOVE {one} {}", draw.database()),
        52..=53 => format!("SWAPDB {} {}", draw.database(), draw.database()),
        54 => format!("PEXPIRE {one} 0"),
        55 => format!("PEXPIREAT {one} 1"),
        56..=57 => format!("PEXPIREAT {one} {later}"),
        58 => format!("EXPIRE {one} 9000000000"),
        59..=61 => format!("PERSIST {one}"),
        62 if draw.below(4) > 0 => format!("OM.SET {one} {field} v{count}"),
        62 => "FLUSHALL".to_owned(),
        _ if draw.below(2) > 0 => format!("OM.SET {one} {field} v{count}"),
        _ => "FLUSHDB".to_owned(),
    }
}
