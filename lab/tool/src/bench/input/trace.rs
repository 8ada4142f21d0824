//! Traces of YCSB: a line for each operation, in the format of its basic database
//! (`READ usertable user42 [ <all fields>]`), or with an operation and a key only (`READ 42`).

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_random::mix;

use crate::bench::op::Op;

/// The operations of a file, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The key of each.
    pub ids: Vec<u64>,
    /// The kind of each.
    pub ops: Vec<Op>,
    /// Number of entries of each scan.
    pub lengths: Vec<u32>,
}

impl Trace {
    /// Reads a file. Skips other output of YCSB.
    pub fn read(path: &Path) -> Outcome<Self> {
        let io = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
        let (mut trace, mut line, mut number) = (Self::default(), Vec::new(), 0u64);
        loop {
            line.clear();
            if file.read_until(b'\n', &mut line).map_err(io)? == 0 {
                break;
            }
            number += 1;
            if number.is_multiple_of(1 << 16) {
                interrupt::check("the trace is not read")?;
            }
            let bad = |what: String| {
                Failure::new(Exit::BadInput, format!("{}, line {number}: {what}", path.display()))
            };
            if line.pop_if(|byte| *byte == b'\n').is_none() {
                return Err(bad("it ends amid the line: the file is truncated".to_owned()));
            }
            trace.line(&String::from_utf8_lossy(&line)).map_err(bad)?;
        }
        if trace.ids.is_empty() {
            let what = format!("{}: no operations: not a trace of YCSB", path.display());
            return Err(Failure::new(Exit::BadInput, what));
        }
        Ok(trace)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let op = match words.next() {
            Some("INSERT") => Op::Insert,
            Some("READ") => Op::Get,
            Some("UPDATE") => Op::Update,
            Some("SCAN") => Op::Scan,
            Some("DELETE" | "REMOVE") => Op::Remove,
            Some("READMODIFYWRITE") => Op::ReadModifyWrite,
            _ => return Ok(()),
        };
        let (Some(first), second) = (words.next(), words.next()) else {
            return Err("an operation without a key: the line is cut off".to_owned());
        };
        // The name of a table precedes the key, if present.
        let (key, length) = match (number(first), second) {
            (Some(key), length) => (key, length),
            (None, Some(key)) if !key.starts_with('[') => {
                (number(key).unwrap_or_else(|| hash(key)), words.next())
            }
            (None, _) => (hash(first), second),
        };
        let length = match (op, length.map(str::parse)) {
            (Op::Scan, Some(Ok(length))) if length > 0 => length,
            (Op::Scan, _) => return Err("a scan without a length: the line is cut off".to_owned()),
            _ => 0,
        };
        self.ids.push(key);
        self.ops.push(op);
        self.lengths.push(length);
        Ok(())
    }

    /// Returns the keys that must exist before any operation adds them, in order. Adds to `there` all keys that exist
    /// afterwards.
    pub fn missing(&self, there: &mut HashSet<u64>) -> Vec<u64> {
        let mut missing = Vec::new();
        for (id, op) in self.ids.iter().zip(&self.ops) {
            // A scan need not start at an existing key.
            if *op != Op::Scan && there.insert(*id) && !op.adds() {
                missing.push(*id);
            }
        }
        missing
    }

    /// Returns whether every operation finds its key for any assignment to threads: no operation removes, and no
    /// other operation uses an added key.
    pub fn all_found(&self) -> bool {
        let added: HashSet<u64> =
            self.ids.iter().zip(&self.ops).filter(|(_, op)| op.adds()).map(|(id, _)| *id).collect();
        !self.ops.contains(&Op::Remove)
            && self
                .ids
                .iter()
                .zip(&self.ops)
                .all(|(id, op)| op.adds() || *op == Op::Scan || !added.contains(id))
    }
}

/// Parses a key that is a number, or `user` and a number.
fn number(key: &str) -> Option<u64> {
    key.strip_prefix("user").unwrap_or(key).parse().ok()
}

/// Returns the identity of a key that is not a number.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Trace::read(file.path()).map_err(|failure| failure.line().to_owned())
    }

    #[test]
    fn trace_of_ycsb_and_its_short_form_are_the_same() {
        let long = "\
***************** properties *****************
INSERT usertable user42 [ field0=x y field1=z]
READ usertable user42 [ <all fields>]
SCAN usertable user7 50 [ <all fields>]
UPDATE usertable user42 [ field3=q]
DELETE usertable user42
[OVERALL], RunTime(ms), 10
";
        let short = "INSERT 42\nREAD 42\nSCAN 7 50\nUPDATE 42\nDELETE 42\n";
        let trace = read(long).unwrap();
        assert_eq!(trace, read(short).unwrap());
        assert_eq!(trace.ops, [Op::Insert, Op::Get, Op::Scan, Op::Update, Op::Remove]);
        assert_eq!((trace.ids.as_slice(), trace.lengths[2]), (&[42, 42, 7, 42, 42][..], 50));
        let named = read("READ usertable alpha\nREAD alpha\nREAD beta\n").unwrap();
        assert!(named.ids[0] == named.ids[1] && named.ids[1] != named.ids[2]);
    }

    #[test]
    fn trace_that_is_cut_off_or_something_else_is_refused_in_one_line() {
        assert!(read("READ 1\nREAD 2").unwrap_err().contains("line 2: it ends amid the line"));
        assert!(read("READ 1\nREAD\n").unwrap_err().contains("line 2: an operation without a key"));
        assert!(read("SCAN usertable user7\n").unwrap_err().contains("a scan without a length"));
        assert!(read("hello\n").unwrap_err().contains("no operations"));
    }

    #[test]
    fn trace_tells_which_keys_must_be_there_first() {
        let trace = read("READ 1\nINSERT 2\nREAD 2\nSCAN 3 9\nUPDATE 3\nREAD 1\n").unwrap();
        let mut there = HashSet::new();
        assert_eq!(trace.missing(&mut there), [1, 3]);
        assert_eq!(there, HashSet::from([1, 2, 3]));
        assert!(!trace.all_found(), "2 may be read before it is there");
        assert!(read("READ 1\nINSERT 2\n").unwrap().all_found());
        assert!(!read("READ 1\nDELETE 1\n").unwrap().all_found());
    }
}
