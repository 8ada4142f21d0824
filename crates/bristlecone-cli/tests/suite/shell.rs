//! `shell`: commands on one open pool, piped and typed.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bristlecone::Pool;

use crate::common::Bench;
use crate::signals::{interrupt, terminate};

#[test]
fn a_script_runs_without_a_prompt() {
    let bench = Bench::new();
    bench.run("create @p --size 64M").ok();
    let script = b"# trees\ncreate ages --value u64\nput Methuselah 4857\nput 'old oak' 3000 --new\n\nget Methuselah\n\
        scan --keys\ncreate --tree n --key u64\nput 1 one\nuse ages\nscan --count\ndel Methuselah\ninfo\ninfo ages\ndrop n\nexit\nget nothing\n";
    let said = bench.run_on("shell @p", script, &[]).ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..6], ["created ages", "added", "added", "4857", "Methuselah", "old oak"]);
    assert_eq!(lines[6..10], ["created n", "added", "2", "removed 1 entry"]);
    let [.., heading, tree, _] = lines[..] else { panic!("{said}") };
    assert!(lines[10].starts_with("pool ") && said.contains("\ntrees      2\n"), "{said}");
    assert!(heading.starts_with("tree ") && tree.starts_with("ages "), "{said}");
    assert_eq!(lines.last(), Some(&"dropped n"));
    assert_eq!(bench.run("scan @p ages").ok(), "old oak\t3000\n");
    assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], true);
}

#[test]
fn errors_do_not_end_a_shell_and_the_first_is_its_exit_code() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t").ok();
    let script = b"put a 1\nget b\nfly\nput 'open\nget a\n";
    let ran = bench.run_on("shell @p t", script, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, "added\n1\n"), "{ran:?}");
    let errors: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(errors.len(), 3, "{ran:?}");
    for (error, part) in
        errors.iter().zip(["b has no value", "unrecognized subcommand 'fly'", "an unterminated '"])
    {
        assert!(error.starts_with("bristlecone: ") && error.contains(part), "{error}");
    }
    let ran = bench.run_on("shell @p t -e", script, &[]);
    assert_eq!(ran.stdout, "replaced\n");
    ran.refused(4, "b has no value");
    let json = bench.run_on("shell @p t --json", b"get b\nget a\n", &[]);
    assert_eq!((json.code, json.stdout.as_str()), (4, "{\"key\":\"a\",\"value\":\"1\"}\n"));
    assert!(json.stderr.starts_with("{\"error\":\"b has no value\""), "{json:?}");
    bench.run("shell @p oak").refused(4, "the pool has t");
}

#[test]
fn every_command_works_in_a_shell() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t").ok();
    let file = bench.path("t.dump");
    let file = file.display();
    let script = format!(
        "info\nput a 1\nput b 2 --new\ndump --output {file}\ncreate u\nload copy {file}\nload {file}\ninfo t --space\ncheck\ncheck u\n\
         use copy\nscan\nscan --prefix b --json\ndump --no-header --format csv\nhelp\nhelp scan\nquit\n"
    );
    let ran = bench.run_on("shell @p t", script.as_bytes(), &[]);
    assert_eq!(ran.code, 2, "`--json` is an option of the shell: {ran:?}");
    for part in [
        "uuid",
        "dumped 2 entries",
        "1 tree, 2 entries: 2 added",
        "1 tree, 2 entries: 0 added, 2 unchanged",
        "t: nbtree, str -> str",
        "ok",
        "a\t1\nb\t2\n",
        "a,1\nb,2\n",
        "Print entries in key order",
        "--reverse",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    bench.run_on("shell @p t", b"load -\n", &[]).refused(2, "standard input is the shell's own");
    bench.run_on("shell @p", b"get a\n", &[]).refused(2, "no tree is chosen: `use` one of copy, t, u");
    bench.run_on("shell @p t --read-only", b"put c 3\n", &[]).refused(1, "read-only");
    // The current tree can be renamed, cleared and dropped.
    let script = b"use u\nput a 1\nrename u v\nput b 2\nscan --count\nclear v\nscan --count\ndrop v\ndrop copy\nscan\n";
    let said = bench.run_on("shell @p", script, &[]).ok();
    assert!(said.contains("u is v now\nadded\n2\ncleared v\n0\ndropped v\n"), "{said}");
}

#[test]
fn a_reader_of_a_shell_may_leave() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value u64").ok();
    let lines: String = (0..100_000).map(|key| format!("{key}\t{key}\n")).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    let mut child = bench.command("shell @p t").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"scan\nscan\n").unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 4]).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A terminal, and the tool in it.
pub struct Terminal {
    pub child: Child,
    screen: File,
    /// Output that was not waited for yet.
    shown: String,
}

impl Terminal {
    pub fn new(bench: &Bench, arguments: &str) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let mut command = bench.command(arguments);
        command.env("HOME", bench.path("")).env_remove("XDG_STATE_HOME").env("TERM", "xterm");
        let child = command.stdin(theirs()).stdout(theirs()).stderr(theirs()).spawn().unwrap();
        Self { child, screen: File::from(ours), shown: String::new() }
    }

    /// Waits until the screen shows `text`, and returns the output up to then.
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> String {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let begun = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{text:?} did not come: {:?}", self.shown);
            let pause = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&self.screen, PollFlags::IN)], Some(&pause)).unwrap() > 0 {
                // After the child has ended there is nothing to read.
                let read = self.screen.read(&mut buffer).unwrap_or(0);
                self.shown.extend(buffer[..read].utf8_chunks().map(|chunk| chunk.valid()));
            }
        }
    }

    fn types(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn a_prompt_has_history_and_completion() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let mut terminal = Terminal::new(&bench, "shell @p");
    terminal.shows("p> ");
    terminal.types("us\ta\t\r");
    // Ctrl-C discards the typed line.
    for (keys, shown) in [
        ("put Methuselah 4857\r", "\nadded"),
        ("get Meth\x03", "get Meth"),
        ("get Methuselah\r", "\n4857"),
        ("fly\r", "unrecognized subcommand 'fly'"),
        ("info\r", "\nages"),
    ] {
        terminal.shows("p/ages> ");
        terminal.types(keys);
        terminal.shows(shown);
    }
    terminal.shows("p/ages> ");
    terminal.types("\x04");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    let history = std::fs::read_to_string(bench.path(".local/state/bristlecone/history")).unwrap();
    assert!(history.contains("put Methuselah 4857"), "{history}");
    let mut terminal = Terminal::new(&bench, "shell @p ages");
    terminal.shows("p/ages> ");
    // Arrow up three times: `info`, `fly`, `get Methuselah`.
    terminal.types("\x1b[A\x1b[A\x1b[A\r");
    terminal.shows("\n4857");
    terminal.types("exit\r");
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn ctrl_c_stops_a_command_and_not_the_shell() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value u64").ok();
    let lines: String = (0..300_000).map(|key| format!("{key}\t{key}\n")).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    let mut terminal = Terminal::new(&bench, "shell @p t");
    terminal.shows("p/t> ");
    terminal.types("scan\r");
    terminal.shows("1000\t1000");
    interrupt(&terminal.child);
    terminal.shows("interrupted");
    terminal.types("scan --count\r");
    terminal.shows("300000");
    // At the prompt a request to end takes effect immediately.
    terminal.shows("p/t> ");
    terminate(&terminal.child);
    assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
    let pool = Pool::options().open(bench.path("p")).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), 300_000);
}

#[test]
fn tables_are_cut_to_a_terminal_and_whole_elsewhere() {
    let bench = Bench::new();
    let name = "n".repeat(55);
    bench.run(&format!("create @p --size 64M --tree {name} --design lodgetree")).ok();
    assert!(bench.run("info @p").ok().contains(&name));
    let mut terminal = Terminal::new(&bench, "info @p");
    let shown = terminal.shows("…");
    assert!(terminal.child.wait().unwrap().success());
    let table = shown.split("tree  ").last().unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{shown}");
}
