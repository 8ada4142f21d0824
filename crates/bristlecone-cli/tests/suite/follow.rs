//! Reading a pool while another process writes to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::common::{Bench, Ran};
use crate::shell::Terminal;
use crate::signals::interrupt;

/// An interactive run of the tool, read line by line; killed at the end.
struct Talk {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(bench: &Bench, arguments: &str) -> Self {
        let mut command = bench.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// Types a line.
    fn type_in(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns the next line of output, without its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn object(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Types a command whose output is one line.
    #[track_caller]
    fn does(&mut self, command: &str, answer: &str) {
        self.type_in(command);
        assert_eq!(self.line(), answer, "{command}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends its input, and returns the remaining output.
    fn end(mut self) -> Ran {
        drop(self.child.stdin.take());
        let mut stdout = String::new();
        while self.answers.read_line(&mut stdout).unwrap() > 0 {}
        let stderr = std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Ran { code, stdout, stderr }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn commands_read_while_a_process_writes() {
    for design in ["sstree", "cclbtree", "wotree", "lodgetree", "nbtree"] {
        let bench = Bench::new();
        bench.run(&format!("create @p --size 64M --tree ages --value u64 --design {design}")).ok();
        let mut writer = Talk::begin(&bench, "shell @p ages");
        writer.does("put Methuselah 4857", "added");
        writer.does("put Pando 16000", "added");

        assert_eq!(bench.run("get @p ages Pando").ok(), "16000\n", "{design}");
        assert_eq!(bench.run("scan @p ages").ok(), "Methuselah\t4857\nPando\t16000\n", "{design}");
        assert_eq!(bench.run("info @p --json").json()["trees"][0]["entries"], 2, "{design}");
        let info = bench.run("info @p --json").json();
        assert_eq!([&info["following"], &info["closed_cleanly"]], [true, false], "{design}");
        assert!(bench.run("info @p").ok().contains("\nfollowed "), "{design}");
        let stat = bench.run("info @p ages --space --json").json();
        let tree = &stat["trees"][0];
        assert_eq!(
            [&tree["entries"], &tree["leaves"], &tree["index_bytes"]],
            [&json!(2), &json!(1), &Value::Null]
        );
        bench.run("info @p --space").ok();
        bench.run("dump @p ages --output @dump").ok();
        bench.run("create @copy --size 64M").ok();
        bench.run("load @copy @dump").ok();
        assert_eq!(bench.run("scan @copy ages").ok(), "Methuselah\t4857\nPando\t16000\n", "{design}");

        writer.does("put Pando 9", "replaced");
        writer.does("del Methuselah", "removed 1 entry");
        assert_eq!(bench.run("scan @p ages").ok(), "Pando\t9\n", "{design}");
        bench.run("get @p ages Methuselah").refused(4, "has no value");

        assert_eq!(writer.end().code, 0);
        assert_eq!(bench.run("info @p --json").json()["following"], false, "{design}");
        assert_eq!(bench.run("scan @p ages").ok(), "Pando\t9\n", "{design}");
    }
}

#[test]
fn a_check_beside_a_writer_says_what_it_leaves_out() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    bench.run("create @p --tree other").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");

    let found = bench.run("check @p ages --json").json();
    assert_eq!([&found["ok"], &found["live"]], [true, true], "{found}");
    assert_eq!(
        (&found["entries"], found["not_checked"].as_array().unwrap().len()),
        (&json!(1), 3),
        "{found}"
    );
    let said = bench.run("check @p ages").ok();
    assert!(
        said.contains("another process writes to the pool") && said.contains("not checked: descriptors"),
        "{said}"
    );
    assert!(said.ends_with("1 tree, 1 entry: all checks passed\n"), "{said}");

    // A tree that cannot be read fails the check.
    let ran = bench.run("check @p --json");
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &found["skipped"], &found["ok"]), (1, &json!(["other"]), &json!(false)), "{found}");
    let ran = bench.run("check @p");
    assert!(ran.code == 1 && ran.stdout.contains("other: not checked"), "{ran:?}");

    assert_eq!(writer.end().code, 0);
    let found = bench.run("check @p --json").json();
    assert_eq!(
        [&found["ok"], &found["live"], &found["not_checked"]],
        [&json!(true), &json!(false), &json!([])]
    );
}

#[test]
fn trees_that_the_writer_has_not_open_are_told() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    bench.run("create @p --tree other").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");
    bench.run("get @p other x").refused(8, "does not have tree \"other\" open");
    bench.run("get @p none x").refused(4, "the pool has ages, other");
    for command in ["info @p --json", "info @p --space --json"] {
        let ran = bench.run(command);
        let info: Value = serde_json::from_str(&ran.stdout).unwrap();
        let entries: Vec<_> = info["trees"].as_array().unwrap().iter().map(|tree| &tree["entries"]).collect();
        assert_eq!((ran.code, entries), (8, vec![&json!(1), &Value::Null]), "{ran:?}");
        assert!(ran.stderr.contains("other") && info["following"] == true, "{ran:?}");
    }
}

#[test]
fn commands_that_write_or_copy_do_not_follow() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");
    let in_use = format!("in use by process {}", writer.child.id());
    for command in [
        "put @p ages a 1",
        "shell @p",
        "load @p ages -",
        "copy @p @q",
        "resize @p --trim",
        "check @p --read-all",
    ] {
        bench.run(command).refused(3, &in_use);
    }
    let mut reader = Talk::begin(&bench, "shell @p ages --read-only");
    reader.does("get Pando", "16000");
    writer.does("put Pando 9", "replaced");
    reader.does("get Pando", "9");
    reader.type_in("put Pando 1");
    let ran = reader.end();
    assert!(ran.code == 1 && ran.stderr.contains("read-only"), "{ran:?}");
    assert_eq!(bench.run("get @p ages Pando").ok(), "9\n");
}

#[test]
fn a_reader_is_told_that_its_writer_was_killed() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64 --design wotree").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");
    let mut reader = Talk::begin(&bench, "shell @p ages --read-only");
    reader.does("get Pando", "16000");
    writer.kill();

    // Acknowledged data stays readable, and a thread may read it until it has checked whether the
    // writer is alive.
    reader.does("get Pando", "16000");
    let commands = ["info ages", "dump", "info", "info --space", "check", "scan", "get Pando"];
    for command in commands {
        reader.type_in(command);
    }
    bench.run("put @p ages Pando 9").ok();
    let commands = commands.len() + 3;
    for command in ["get Pando", "scan", "scan --count"] {
        reader.type_in(command);
    }
    let ran = reader.end();
    let told: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!((ran.code, ran.stdout.as_str(), told.len()), (8, "", commands), "{ran:?}");
    assert!(told.iter().all(|line| line.contains("cannot be followed")), "{ran:?}");
}

#[test]
fn a_pool_whose_writer_was_killed_is_read_as_after_a_crash() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");
    assert_eq!(bench.run("get @p ages Pando").ok(), "16000\n");
    writer.kill();
    assert_eq!(bench.run("get @p ages Pando").ok(), "16000\n");
    assert_eq!(bench.run("scan @p ages --count").ok(), "1\n");
    let info = bench.run("info @p --json").json();
    assert_eq!([&info["following"], &info["closed_cleanly"]], [false, false]);
    assert_eq!(bench.run("check @p --json").json()["live"], false);
}

#[test]
fn a_pool_in_use_that_cannot_be_followed_is_told_with_both() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let uuid = bench.run("info @p --json").json()["uuid"].as_str().unwrap().replace('-', "");
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put Pando 16000", "added");
    let segments = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    let of_pool = segments.filter(|path| path.to_str().unwrap().contains(&uuid)).collect::<Vec<_>>();
    assert_eq!(of_pool.len(), 1, "{of_pool:?}");
    std::fs::remove_file(&of_pool[0]).unwrap();
    let in_use = format!("in use by process {}", writer.child.id());
    for command in ["get @p ages Pando", "info @p", "check @p", "shell @p --read-only"] {
        let ran = bench.run(command);
        assert!(
            ran.stderr.contains("cannot be followed, since no process writes to it that keeps"),
            "{ran:?}"
        );
        ran.refused(3, &in_use);
    }
    bench.run("info @p --wait=0.1").refused(3, "after 0.1 s of waiting");
    bench.run("top @p").refused(8, "cannot be followed");
}

#[test]
fn top_shows_what_a_writer_does() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put a 1", "added");
    writer.does("put b 2", "added");
    let said = bench.run("top @p --count 2 --interval 20ms --json").ok();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, change) in lines.iter().zip([Value::Null, json!(0.0)]) {
        assert_eq!(
            [&line["tree"], &line["entries"], &line["writer"]],
            [&json!("ages"), &json!(2), &json!(true)]
        );
        assert_eq!((&line["entries_per_second"], &line["get"]["lookups"]), (&change, &json!(500)), "{line}");
        let number = |value: &Value| value.as_u64().unwrap();
        let (median, p99) = (number(&line["get"]["median_ns"]), number(&line["get"]["p99_ns"]));
        assert!(0 < median && median <= p99, "{line}");
        assert_eq!(number(&line["file_bytes"]), std::fs::metadata(bench.path("p")).unwrap().len(), "{line}");
        assert!(number(&line["chunks_free"]) < number(&line["chunks"]), "{line}");
    }
    let said = bench.run("top @p --count 2 --interval 20ms").ok();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("tree ") && lines[2].starts_with("ages "), "{said}");

    let mut top = Talk::begin(&bench, "top @p --interval 20ms --json");
    assert_eq!(top.object()["entries"], 2);
    writer.does("put c 3", "added");
    let changed = std::iter::repeat_with(|| top.object()).find(|line| line["entries"] == 3).unwrap();
    assert!(changed["entries_per_second"].as_f64().unwrap() > 0.0, "{changed}");
    writer.does("create more", "created more");
    while top.object()["tree"] != "more" {}
    writer.does("drop more", "dropped more");
    writer.does("del a", "removed 1 entry");
}

#[test]
fn top_ends_with_its_writer_by_count_and_by_ctrl_c() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    bench.run("create @p --tree other").ok();
    bench.run("top @p").refused(8, "no process writes to it");
    bench.run("top @none").refused(4, "none");
    bench.run("top @p --interval 0s").refused(2, "not an interval");
    bench.run("top @p --count 0").refused(2, "--help");
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put a 1", "added");

    let mut top = Talk::begin(&bench, "top @p --interval 20ms --json");
    assert_eq!(top.object()["entries"], 1);
    let other = top.object();
    assert_eq!(
        [&other["tree"], &other["entries"]],
        [&json!("other"), &Value::Null],
        "it is not open: {other}"
    );
    interrupt(&top.child);
    let ran = top.end();
    assert!(ran.code == 0 && ran.stderr.is_empty(), "{ran:?}");

    let mut top = Talk::begin(&bench, "top @p --interval 20ms --json");
    assert_eq!(top.object()["writer"], true);
    writer.kill();
    let ran = top.end();
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((ran.code, &last["writer"]), (8, &json!(false)), "{ran:?}");
    assert!(ran.stderr.lines().count() == 1 && ran.stderr.contains("its writer has exited"), "{ran:?}");
}

#[test]
fn top_refreshes_a_terminal_in_place() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree ages --value u64").ok();
    let mut writer = Talk::begin(&bench, "shell @p ages");
    writer.does("put a 1", "added");
    let mut terminal = Terminal::new(&bench, "top @p --interval 20ms");
    for _ in 0..3 {
        terminal.shows("\x1b[H\x1b[J");
        assert!(terminal.shows("\nages ").contains("Ctrl-C ends it"));
    }
    interrupt(&terminal.child);
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}
