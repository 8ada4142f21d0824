//! Runs a workload of YCSB against a server: `ycsb PORT KIND WORKLOAD RECORDS OPERATIONS CLIENTS PIPELINE VALUE_BYTES`.
//!
//! KIND is `om` (the module's maps), `hash` or `zset` (fields without values). WORKLOAD is `load`, or `a` to `f`: half reads and half updates;
//! 95 % reads; reads; 95 % reads of what is new; 95 % ranges of up to 100; half reads and half reads that are written
//! back. Fields are chosen by Zipf's law with exponent 0.99, scrambled, as YCSB does. One thread serves all
//! connections: it sends to each, then reads from each. Prints operations a second.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const EXPONENT: f64 = 0.99;

/// YCSB's generator of numbers of which the first ones are the most frequent.
struct Zipf {
    items: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64) -> Self {
        let zeta: f64 = (1..=items).map(|n| (n as f64).powf(-EXPONENT)).sum();
        let of_two = 1.0 + 0.5f64.powf(EXPONENT);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - EXPONENT)) / (1.0 - of_two / zeta);
        Self { items: items as f64, zeta, eta }
    }

    fn next(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(EXPONENT) {
            return 1;
        }
        let rank = self.items * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - EXPONENT));
        (rank as u64).min(self.items as u64 - 1)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Driver {
    kind: String,
    workload: String,
    records: u64,
    value: Vec<u8>,
    zipf: Zipf,
    random: Random,
}

fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    write!(out, "*{}\r\n", words.len()).unwrap();
    for word in words {
        write!(out, "${}\r\n", word.len()).unwrap();
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the field of a record: records that follow each other are far apart.
fn field(record: u64) -> Vec<u8> {
    format!("user{:016x}", record.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

impl Driver {
    fn read(&self, out: &mut Vec<u8>, field: &[u8]) {
        match self.kind.as_str() {
            "om" => words(out, &[b"OM.GET", b"m", field]),
            "hash" => words(out, &[b"HGET", b"m", field]),
            _ => words(out, &[b"ZSCORE", b"m", field]),
        }
    }

    fn write(&self, out: &mut Vec<u8>, field: &[u8]) {
        match self.kind.as_str() {
            "om" => words(out, &[b"OM.SET", b"m", field, &self.value]),
            "hash" => words(out, &[b"HSET", b"m", field, &self.value]),
            _ => words(out, &[b"ZADD", b"m", b"0", field]),
        }
    }

    fn range(&mut self, out: &mut Vec<u8>, field: &[u8]) {
        let from = [b"[", field].concat();
        let limit = (1 + self.random.next() % 100).to_string();
        match self.kind.as_str() {
            "om" => words(out, &[b"OM.RANGE", b"m", &from, b"+", b"LIMIT", limit.as_bytes()]),
            "zset" => words(out, &[b"ZRANGEBYLEX", b"m", &from, b"+", b"LIMIT", b"0", limit.as_bytes()]),
            kind => panic!("{kind} has no ranges"),
        }
    }

    /// Appends an operation. Returns how many replies it has.
    fn operation(&mut self, out: &mut Vec<u8>) -> u64 {
        let (uniform, percent) = (self.random.uniform(), self.random.next() % 100);
        let rank = self.zipf.next(uniform);
        let chosen = field(rank);
        let one = match self.workload.as_str() {
            "a" => percent < 50,
            "b" | "d" | "e" => percent < 95,
            "c" => true,
            _ => {
                self.read(out, &chosen);
                if percent < 50 {
                    return 1;
                }
                self.write(out, &chosen);
                return 2;
            }
        };
        match (self.workload.as_str(), one) {
            ("d", true) => self.read(out, &field(self.records - 1 - rank.min(self.records - 1))),
            ("e", true) => self.range(out, &chosen),
            ("d" | "e", false) => {
                self.records += 1;
                self.write(out, &field(self.records - 1));
            }
            (_, true) => self.read(out, &chosen),
            (_, false) => self.write(out, &chosen),
        }
        1
    }

    /// Appends a command that writes a hundred records.
    fn load(&self, out: &mut Vec<u8>, first: u64) {
        let mut all: Vec<Vec<u8>> = match self.kind.as_str() {
            "om" => vec![b"OM.SET".to_vec(), b"m".to_vec()],
            "hash" => vec![b"HSET".to_vec(), b"m".to_vec()],
            _ => vec![b"ZADD".to_vec(), b"m".to_vec()],
        };
        for record in first..(first + 100).min(self.records) {
            if self.kind == "zset" {
                all.extend([b"0".to_vec(), field(record)]);
            } else {
                all.extend([field(record), self.value.clone()]);
            }
        }
        words(out, &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

/// Reads a reply away.
fn skip(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>) {
    let mut left = 1u64;
    while left > 0 {
        left -= 1;
        line.clear();
        stream.read_until(b'\n', line).expect("the server replies");
        let number = || -> i64 { std::str::from_utf8(&line[1..line.len() - 2]).unwrap().parse().unwrap() };
        match line.first() {
            Some(b'*') => left += number().max(0) as u64,
            Some(b'$') if number() >= 0 => {
                let len = number() as usize + 2;
                line.resize(len, 0);
                stream.read_exact(line).expect("the server replies");
            }
            Some(b'$' | b':' | b'+' | b'_') => {}
            _ => panic!("{}", String::from_utf8_lossy(line)),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u64 { arguments[at].parse().expect("a number") };
    let (operations, clients, pipeline) = (number(4), number(5), number(6));
    let mut driver = Driver {
        kind: arguments[1].clone(),
        workload: arguments[2].clone(),
        records: number(3),
        value: vec![b'v'; number(7) as usize],
        zipf: Zipf::new(number(3)),
        random: Random(0x9e37_79b9 + operations),
    };
    let port = number(0) as u16;
    let mut streams: Vec<BufReader<TcpStream>> = (0..clients)
        .map(|_| {
            let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
            stream.set_nodelay(true).unwrap();
            BufReader::with_capacity(64 << 10, stream)
        })
        .collect();
    let (mut out, mut line) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut done = 0;
    if driver.workload == "load" {
        while done < driver.records {
            out.clear();
            let mut commands = 0;
            while done < driver.records && commands < 16 {
                driver.load(&mut out, done);
                done += 100;
                commands += 1;
            }
            streams[0].get_mut().write_all(&out).unwrap();
            (0..commands).for_each(|_| skip(&mut streams[0], &mut line));
        }
    }
    let mut replies = vec![0; streams.len()];
    while driver.workload != "load" && done < operations {
        for (stream, replies) in streams.iter_mut().zip(&mut replies) {
            out.clear();
            *replies = (0..pipeline).map(|_| driver.operation(&mut out)).sum();
            stream.get_mut().write_all(&out).unwrap();
        }
        for (stream, replies) in streams.iter_mut().zip(&replies) {
            (0..*replies).for_each(|_| skip(stream, &mut line));
        }
        done += pipeline * clients;
    }
    println!("{:.0}", done as f64 / began.elapsed().as_secs_f64());
}
