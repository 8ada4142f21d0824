//! A process is recorded by `strace`, and the power fails between its system calls: what the file system was told to
//! keep is all that a simulated disk cannot show.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

use bristlecone_random::Generator as Random;

use super::kills::{CHILD, STOP, options};
use super::{Scratch, is_thorough};
use crate::Durability;

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;
const CALLS: &str =
    "openat,pwrite64,write,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate";

/// A system call on a file of the journal, or a count that was acknowledged.
#[derive(Debug)]
enum Call {
    Create(String),
    Write { name: String, offset: usize, bytes: Vec<u8> },
    Sync(String),
    SyncFolder,
    Rename(String, String),
    Remove(String),
    Acknowledge { thread: usize, count: u64 },
}

/// A call, by the lines of the record at which it begins and ends.
#[derive(Debug)]
struct Recorded {
    begin: usize,
    end: usize,
    call: Call,
}

/// Returns the text between the first quotation marks, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once('"')?;
    rest.split_once('"')
}

/// Returns the bytes of a text such as `\x61\x62`.
fn bytes(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn text(hex: &str) -> String {
    String::from_utf8(bytes(hex)).unwrap()
}

/// Returns the name of a file in the folder, and an empty one for the folder itself.
fn name_in(folder: &str, path: &str) -> Option<String> {
    path.strip_prefix(folder).map(|rest| rest.trim_start_matches('/').to_owned())
}

/// Parses the arguments of a call. `None` for calls on other files.
fn call(folder: &str, name: &str, arguments: &str) -> Option<Call> {
    // Of a descriptor, the path in angle brackets.
    let path =
        arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| text_of(path));
    let of_path = || name_in(folder, &path.clone()?);
    match name {
        "openat" => {
            let (path, flags) = quoted(arguments)?;
            let name = name_in(folder, &text(path))?;
            flags.contains("O_CREAT").then_some(Call::Create(name))
        }
        "pwrite64" => {
            let name = of_path()?;
            let (data, rest) = quoted(arguments)?;
            assert!(!rest.starts_with("..."), "a shortened record");
            let offset = rest.trim_end_matches(')').rsplit(", ").next()?.trim().parse().unwrap();
            Some(Call::Write { name, offset, bytes: bytes(data) })
        }
        "write" if arguments.starts_with("1<") => {
            let line = text(quoted(arguments)?.0);
            let (thread, count) = line.strip_prefix('#')?.trim().split_once(' ')?;
            Some(Call::Acknowledge { thread: thread.parse().unwrap(), count: count.parse().unwrap() })
        }
        "fsync" | "fdatasync" => {
            let name = of_path()?;
            Some(if name.is_empty() { Call::SyncFolder } else { Call::Sync(name) })
        }
        "rename" | "renameat" | "renameat2" => {
            let (from, rest) = quoted(arguments)?;
            let (to, _) = quoted(rest)?;
            Some(Call::Rename(name_in(folder, &text(from))?, name_in(folder, &text(to))?))
        }
        "unlink" | "unlinkat" => Some(Call::Remove(name_in(folder, &text(quoted(arguments)?.0))?)),
        // Messages, and the pool's file.
        "write" => None,
        "ftruncate" if of_path().is_none() => None,
        _ => panic!("{name} is not expected of a journal: {arguments}"),
    }
}

/// Returns a path that may be written in hexadecimal digits.
fn text_of(path: &str) -> String {
    if path.starts_with("\\x") { text(path) } else { path.to_owned() }
}

/// Returns what a call did that a kill interrupted, as the next process finds it.
fn as_found(folder: &Path, call: Call) -> Option<Call> {
    let exists = |name: &str| folder.join(name).exists();
    match call {
        Call::Write { name, offset, bytes } => {
            let found = std::fs::read(folder.join(&name)).ok()?;
            let bytes = found.get(offset..offset + bytes.len())?.to_vec();
            Some(Call::Write { name, offset, bytes })
        }
        Call::Create(name) => exists(&name).then_some(Call::Create(name)),
        Call::Rename(from, to) => (!exists(&from)).then_some(Call::Rename(from, to)),
        Call::Remove(name) => (!exists(&name)).then_some(Call::Remove(name)),
        // Its result was not seen.
        Call::Sync(_) | Call::SyncFolder => None,
        Call::Acknowledge { .. } => Some(call),
    }
}

/// Reads a record of `strace -f -y -xx`, whose first line is the one with the number `base`.
fn read(folder: &str, record: &str, base: usize) -> Vec<Recorded> {
    let (mut calls, mut pending) = (Vec::new(), HashMap::new());
    for (line, text) in record.lines().enumerate().map(|(line, text)| (base + line, text)) {
        let Some((thread, text)) = text.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(rest) = text.strip_prefix("<... ") {
            let Some((begin, call)) = pending.remove(thread) else { continue };
            assert!(rest.contains(" = "), "{rest}");
            calls.push(Recorded { begin, end: line, call });
            continue;
        }
        // Signals, ends of threads, and calls that a kill interrupted before they began.
        if text.starts_with(['-', '+', '?']) {
            continue;
        }
        let Some((name, arguments)) = text.split_once('(') else { continue };
        let is_unfinished = arguments.ends_with("<unfinished ...>");
        let arguments = arguments.trim_end_matches("<unfinished ...>").trim_end();
        let (arguments, result) = arguments.rsplit_once(" = ").unwrap_or((arguments, "0"));
        if result.starts_with('-') {
            continue;
        }
        let Some(call) = call(folder, name, arguments.trim_end()) else { continue };
        match is_unfinished {
            true => _ = pending.insert(thread.to_owned(), (line, call)),
            false => calls.push(Recorded { begin: line, end: line, call }),
        }
    }
    let interrupted = pending.into_values().filter_map(|(begin, call)| {
        let call = as_found(Path::new(folder), call)?;
        Some(Recorded { begin, end: base + record.lines().count(), call })
    });
    calls.extend(interrupted);
    calls.sort_by_key(|call| call.begin);
    calls
}

#[derive(Clone, Default)]
struct File {
    durable: Vec<u8>,
    /// Line of the end, offset and bytes of each write that is not synced.
    unsynced: Vec<(usize, usize, Vec<u8>)>,
}

impl File {
    fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        into.resize(into.len().max(offset + bytes.len()), 0);
        into[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// What a sync that began at a line keeps.
    fn sync(&mut self, begin: usize) {
        for (end, offset, bytes) in std::mem::take(&mut self.unsynced) {
            if end < begin {
                Self::write(&mut self.durable, offset, &bytes);
            } else {
                self.unsynced.push((end, offset, bytes));
            }
        }
    }

    fn after_failure(&self, random: &mut Random) -> Vec<u8> {
        let (mut found, kept) = (self.durable.clone(), random.below(4));
        for (_, offset, bytes) in &self.unsynced {
            for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                if kept == 1 || kept > 1 && random.below(2) == 0 {
                    Self::write(&mut found, offset + at * SECTOR, sector);
                }
            }
        }
        found
    }
}

type Names = HashMap<String, usize>;

/// The folder of a journal on a disk.
#[derive(Clone, Default)]
struct Disk {
    files: Vec<File>,
    names: Names,
    durable_names: Names,
    /// Line of the end of each change of names that is not synced, and the name's file.
    unsynced_names: Vec<(usize, String, Option<usize>)>,
    acknowledged: [u64; 3],
    /// Lets syncs of files do nothing, which must be noticed.
    ignores_syncs: bool,
}

fn name(names: &mut Names, name: &str, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name.to_owned(), file),
        None => names.remove(name),
    };
}

impl Disk {
    fn rename(&mut self, end: usize, of: &str, file: Option<usize>) {
        name(&mut self.names, of, file);
        self.unsynced_names.push((end, of.to_owned(), file));
    }

    /// Carries out a call. Syncs count once they have ended, everything else as soon as it has begun.
    fn run(&mut self, recorded: &Recorded) {
        let Recorded { begin, end, call } = recorded;
        match call {
            Call::Create(name) if self.names.contains_key(name) => {}
            Call::Create(name) => {
                self.files.push(File::default());
                self.rename(*end, name, Some(self.files.len() - 1));
            }
            Call::Write { name, offset, bytes } => {
                let file = self.names[name];
                self.files[file].unsynced.push((*end, *offset, bytes.clone()));
            }
            Call::Sync(_) if self.ignores_syncs => {}
            Call::Sync(name) => self.files[self.names[name]].sync(*begin),
            Call::SyncFolder => {
                let (synced, rest) =
                    std::mem::take(&mut self.unsynced_names).into_iter().partition(|(end, ..)| end < begin);
                let synced: Vec<_> = synced;
                synced.iter().for_each(|(_, of, file)| name(&mut self.durable_names, of, *file));
                self.unsynced_names = rest;
            }
            Call::Rename(from, to) => {
                let file = self.names.get(from).copied();
                self.rename(*end, from, None);
                self.rename(*end, to, file);
            }
            Call::Remove(name) => self.rename(*end, name, None),
            Call::Acknowledge { thread, count } => {
                self.acknowledged[*thread] = self.acknowledged[*thread].max(*count);
            }
        }
    }

    /// Writes the folder as a power failure leaves it.
    fn after_failure(&self, folder: &Path, random: &mut Random) {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir(folder).unwrap();
        let (mut names, kept) = (self.durable_names.clone(), random.below(3));
        for (_, of, file) in &self.unsynced_names {
            if kept == 1 || kept == 2 && random.below(2) == 0 {
                name(&mut names, of, *file);
            }
        }
        for (name, file) in names.iter().filter(|(name, _)| *name != "ring") {
            std::fs::write(folder.join(name), self.files[*file].after_failure(random)).unwrap();
        }
    }
}

#[test]
fn power_failures_between_recorded_system_calls_lose_nothing() {
    let has_strace =
        Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|ended| ended.success());
    if !has_strace {
        assert!(
            std::env::var_os("BRISTLECONE_NEEDS_STRACE").is_none(),
            "strace cannot record a process here"
        );
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    let is_wide = is_thorough();
    let mut cuts = 0;
    for (seed, design) in crate::Design::ALL.iter().enumerate().take(if is_wide { 5 } else { 1 }) {
        cuts += cut_everywhere(design.name(), seed as u64, if is_wide { 1 } else { 40 }, false);
    }
    super::quiet();
    let lost = catch_unwind(|| cut_everywhere(crate::Design::ALL[0].name(), 9, 40, true));
    assert!(lost.is_err(), "it is not noticed that no file is synced");
    println!("{cuts} power failures");
    assert!(cuts > if is_wide { 2000 } else { 20 }, "only {cuts} power failures");
}

/// Runs and kills a process twice, and cuts the power before every `share`th call; returns how often.
fn cut_everywhere(design: &str, seed: u64, share: usize, ignores_syncs: bool) -> usize {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let folder = scratch.0.with_extension("journal");
    let mut disk = Disk { ignores_syncs, ..Disk::default() };
    let (mut random, mut cuts) = (Random::new(seed), 0);
    let record = scratch.0.with_extension("record");
    let mut lines = 0;
    for round in 0..2 {
        let mut child = Command::new("strace");
        child
            .args(["-f", "-y", "-xx", "-s", "100000000", "-e", &format!("trace={CALLS}"), "-o"])
            .arg(&record);
        child.arg(std::env::current_exe().unwrap());
        child.args(["--exact", "journal::tests::kills::child", "--nocapture", "--test-threads", "1"]);
        child.env(CHILD, format!("{} commit {design} 1", scratch.0.display())).env(STOP, "300");
        let ended = child.output().unwrap();
        assert!(!ended.status.success(), "the child did not kill itself: {ended:?}");
        let text = std::fs::read_to_string(&record).unwrap();
        let calls = read(folder.to_str().unwrap(), &text, lines);
        lines += text.lines().count() + 1;
        let is_acknowledged = |recorded: &Recorded| matches!(recorded.call, Call::Acknowledge { .. });
        let first = calls.iter().position(is_acknowledged).unwrap();
        assert!(
            calls.iter().filter(|recorded| is_acknowledged(recorded)).count() >= 250,
            "too few acknowledgements"
        );
        for (at, recorded) in calls.iter().enumerate() {
            if (at > first || round > 0) && at % share == (seed as usize + round) % share {
                verify(&disk, &scratch, &other, &mut random);
                cuts += 1;
            }
            disk.run(recorded);
        }
        verify(&disk, &scratch, &other, &mut random);
    }
    for path in [&record, &other.0.with_extension("journal")] {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_dir_all(path);
    }
    let _ = std::fs::remove_dir_all(folder);
    cuts
}

/// Opens the pool as it would be after a power failure now.
fn verify(disk: &Disk, scratch: &Scratch, other: &Scratch, random: &mut Random) {
    disk.after_failure(&other.0.with_extension("journal"), random);
    // The pool's pages are worthless.
    let mut pages = std::fs::read(&scratch.0).unwrap();
    pages[8192..].fill(0x5a);
    std::fs::write(&other.0, pages).unwrap();
    let pool = options(&other.0, Durability::Commit, 2).open(&other.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    for (thread, acknowledged) in disk.acknowledged.iter().enumerate() {
        let get = |at: u64| tree.get(thread as u64 + 10 * at).unwrap().unwrap_or(0);
        let found = get(0);
        assert!(
            found >= *acknowledged,
            "{found} is found of thread {thread}, but {acknowledged} was acknowledged"
        );
        let of_batch = found - found % 4;
        assert_eq!([get(1), get(2), get(3)], [of_batch; 3], "a part of a batch");
    }
    drop(tree);
    pool.simulate_crash();
}
