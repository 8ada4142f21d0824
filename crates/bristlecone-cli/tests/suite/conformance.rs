//! The table that every language runs, as far as there are commands: see `bindings/conformance/README.md`.

use std::process::Command;

use bristlecone::Design;
use bristlecone::dynamic::{Datum, Kind};
use bristlecone_matrix::conformance::{Case, Change, Gives, Outcome, Step, cases};
use bristlecone_matrix::share;
use serde_json::Value;

use crate::common::{Bench, Ran};
use expiry::value_of;

mod expiry;

/// The operations for which there is a command. A command opens and closes the pool and the tree.
const OPERATIONS: &[&str] = &[
    "create",
    "open",
    "expiring",
    "close",
    "drop",
    "rename",
    "clear",
    "trees",
    "check",
    "reopen",
    "get",
    "contains",
    "len",
    "put",
    "insert",
    "exchange",
    "update",
    "remove",
    "scan",
    "prefix",
    "get_many",
    "remove_many",
    "remove_range",
    "remove_prefix",
    "changes",
    "expiry",
    "set_expiry",
    "expires_later",
    "expire_after",
];

/// The longest argument of a program, roughly.
const ARGUMENT_MAX: u64 = 60_000;

/// Returns whether commands can carry out a case: its arguments contain no zero, and no tree has to be open. JSON is printed
/// in another form than it was written.
fn is_possible(case: &Case) -> bool {
    let text = format!("{:?}", case.steps);
    // Commands show live values only, so that those of entries are not theirs.
    let is_live = |step: &Step| {
        let on = step.optional_name("on").unwrap_or("live");
        on == "live"
            || matches!(
                step.operation(),
                "create" | "open" | "expiring" | "close" | "drop" | "rename" | "clear" | "len"
            )
    };
    let expires = case.steps.iter().any(|step| step.operation() == "expiring");
    case.steps.iter().all(|step| OPERATIONS.contains(&step.operation()) && step.times_max() <= ARGUMENT_MAX)
        && case
            .steps
            .iter()
            .all(|step| step.optional_name("is") != Some("in_use") && !step.is_set("read_only"))
        && case.steps.iter().all(|step| step.operation() != "remove_range" || has_bounds_of_the_tool(step))
        && (!expires || case.steps.iter().all(is_live))
        && !text.contains("\\0")
        && !text.contains("\"datum\"")
        && !text.contains("\"json\"")
}

/// Returns whether a range includes the first key, and excludes the last one.
fn has_bounds_of_the_tool(step: &Step) -> bool {
    !step.is_set("from_excluded") && !step.is_set("end_included")
}

#[test]
fn commands_do_what_the_table_says() {
    let cases: Vec<_> = cases(&["changes", "create_new", "nested_options", "null_bounds"])
        .into_iter()
        .filter(is_possible)
        .collect();
    assert!(cases.len() >= 50, "only {} cases are possible", cases.len());
    let runs: Vec<_> =
        cases.iter().flat_map(|case| Design::ALL.iter().map(move |&design| (case, design))).collect();
    for (case, design) in share(runs, 12) {
        let mut session = Session { bench: Bench::new(), design, live: None };
        let domain = if case.has_journal { "journal" } else { "process" };
        session.bench.run(&format!("create @p --size 64M --domain {domain}")).ok();
        for step in &case.steps {
            if has_bounds_of_the_tool(step) {
                let kinds = session.kinds(step);
                let outcome = session.run(step, kinds.as_ref());
                let kinds = session.kinds(step);
                step.expect(
                    &outcome,
                    kinds.as_ref().map(|(keys, values)| (keys, values)),
                    &format!("{}, {}", case.name, design.name()),
                );
            }
        }
        session.bench.run("check @p").ok();
    }
}

struct Session {
    bench: Bench,
    design: Design,
    /// The name of the tree whose live values the case uses.
    live: Option<String>,
}

type Kinds = (Kind, Kind);

const DONE: Outcome = ("ok", Gives::Nothing);

fn outcome_of(ran: &Ran) -> Outcome {
    let status = match ran.code {
        0 => "ok",
        1 => "present",
        2 => "usage",
        4 => "absent",
        code => panic!("exit code {code}: {ran:?}"),
    };
    (status, Gives::Nothing)
}

impl Session {
    /// Runs a command on the pool, with arguments that follow `--`.
    fn command(&self, arguments: &[&str], words: &[String]) -> Ran {
        let mut command: Command = self.bench.command(arguments[0]);
        command
            .arg(self.bench.path("p"))
            .args(&arguments[1..])
            .args((!words.is_empty()).then_some("--"))
            .args(words);
        Ran::of(command, b"")
    }

    /// Returns the trees of the pool.
    fn trees(&self) -> Vec<[String; 3]> {
        let info = self.bench.run("info @p --json").json();
        let text = |tree: &Value, name: &str| tree[name].as_str().unwrap().to_owned();
        let trees = info["trees"].as_array().unwrap().iter();
        let mut trees: Vec<_> =
            trees.map(|tree| ["name", "key", "value"].map(|name| text(tree, name))).collect();
        trees.sort();
        trees
    }

    /// Returns the commits of the change stream. After the command `put` the stream has `existed`, which must be correct.
    /// It has none after a `put` of the table, and is returned without it.
    fn commits(&self, step: &Step) -> Vec<Vec<Change>> {
        let printed = self.command(&["changes", "--json"], &[]).ok();
        let mut commits: Vec<(u64, Vec<Change>)> = Vec::new();
        for line in printed.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line.get(name).map(|text| text.as_str().unwrap().to_owned());
            let stored = |name: &str, kind: &str| {
                line.get(name).map(|datum| datum_of(&step.name(kind).parse().unwrap(), datum))
            };
            let change = Change {
                what: text("kind").expect("a kind"),
                tree: text("tree").expect("a tree"),
                key: stored("key", "key_kind"),
                value: stored("value", "value_kind"),
                existed: line.get("existed").and_then(Value::as_bool),
                renamed_to: text("to"),
            };
            let lsn = line["lsn"].as_u64().unwrap();
            match commits.last_mut() {
                Some((last, changes)) if *last == lsn => changes.push(change),
                _ => commits.push((lsn, vec![change])),
            }
        }
        let mut commits: Vec<_> = commits.into_iter().map(|(_, changes)| changes).collect();
        let mut present = Vec::new();
        for (change, of_table) in commits.iter_mut().flatten().zip(step.commits().iter().flatten()) {
            let item = (change.tree.clone(), change.key.clone());
            let existed = present.contains(&item);
            match &*change.what {
                "put" if !existed => present.push(item),
                "remove" => present.retain(|held| *held != item),
                "clear" | "drop" => present.retain(|(tree, _)| *tree != change.tree),
                _ => {}
            }
            if of_table.existed.is_none() && change.what == "put" {
                assert!(change.existed.is_none_or(|told| told == existed), "{change:?}");
                change.existed = None;
            }
        }
        commits
    }

    /// Returns the name of the tree that a step names.
    fn name<'a>(&'a self, step: &'a Step) -> Option<&'a str> {
        match step.optional_name("on")? {
            "live" => self.live.as_deref(),
            name => Some(name),
        }
    }

    /// Returns the kinds of the tree that a step names, if it exists; that of values without their times if it names live
    /// values.
    fn kinds(&self, step: &Step) -> Option<Kinds> {
        let name = self.name(step)?;
        let tree = self.trees().into_iter().find(|tree| tree[0] == name)?;
        let values = match tree[2].parse().unwrap() {
            Kind::Expiring(inner) if step.optional_name("on") == Some("live") => *inner,
            other => other,
        };
        Some((tree[1].parse().unwrap(), values))
    }

    fn run(&mut self, step: &Step, kinds: Option<&Kinds>) -> Outcome {
        if step.operation() == "expiring" {
            self.live = Some(step.name("on").to_owned());
            let is_expiring = matches!(kinds, Some((_, Kind::Expiring(_))));
            return (if is_expiring { "ok" } else { "usage" }, Gives::Nothing);
        }
        let name = self.name(step).unwrap_or_default();
        match step.operation() {
            "create" => {
                let design = step.optional_name("design").unwrap_or(self.design.name());
                let kinds = ["--key", step.name("key_kind"), "--value", step.name("value_kind")];
                let after = step.number("expire_after").map(|millis| format!("--expire-after={millis}ms"));
                let create = ["create", "--tree", name, "--design", design];
                let arguments = create.iter().chain(&kinds).copied().chain(after.as_deref());
                outcome_of(&self.command(&arguments.collect::<Vec<_>>(), &[]))
            }
            "open" => self.opened(step, kinds),
            "close" | "reopen" => DONE,
            "check" => outcome_of(&self.command(&["check"], &[])),
            "drop" | "clear" => outcome_of(&self.command(&[step.operation(), name], &[])),
            "rename" => outcome_of(&self.command(&["rename", name, step.name("to")], &[])),
            "trees" => ("ok", Gives::Trees(self.trees())),
            "changes" => ("ok", Gives::Commits(self.commits(step))),
            _ => self.on_tree(step, name, kinds.expect("a tree")),
        }
    }

    /// Opens a tree as every command does, by its name.
    fn opened(&self, step: &Step, kinds: Option<&Kinds>) -> Outcome {
        let Some(kinds) = kinds else { return outcome_of(&self.command(&["scan", step.name("on")], &[])) };
        let asked = [("key_kind", &kinds.0), ("value_kind", &kinds.1)];
        let fits = asked.iter().all(|(argument, kind)| {
            step.optional_name(argument).is_none_or(|asked| asked == kind.to_string())
        });
        (if fits { "ok" } else { "usage" }, Gives::Nothing)
    }

    fn on_tree(&self, step: &Step, name: &str, kinds: &Kinds) -> Outcome {
        let word = |argument, kind| step.datum(argument, kind).map(|datum| text_of(&datum));
        let key = word("key", &kinds.0).unwrap_or_default();
        let expires = expiry::flag(step);
        let expires = (step.optional_name("on") == Some("live")).then_some(&expires[..]);
        let put = |flags: &[&str]| {
            let words = [key.clone(), word("value", &kinds.1).expect("a value")];
            let flags = flags.iter().copied().chain(expires);
            outcome_of(&self.command(&["put", name].into_iter().chain(flags).collect::<Vec<_>>(), &words))
        };
        match step.operation() {
            "get" => self.value(name, key, &kinds.1),
            "contains" => ("ok", Gives::Bool(self.value(name, key, &kinds.1).0 == "ok")),
            "len" if expires.is_none() && matches!(kinds.1, Kind::Expiring(_)) => self.entries(name),
            "expiry" | "set_expiry" | "expires_later" | "expire_after" => self.timed(step, name, key),
            "len" => {
                let counted = self.command(&["scan", name, "--count"], &[]).ok();
                ("ok", Gives::Count(counted.trim().parse().unwrap()))
            }
            "put" => put(&[]),
            "exchange" => {
                let old = self.value(name, key.clone(), &kinds.1).1;
                (put(&[]).0, old)
            }
            "update" => {
                let old = self.value(name, key.clone(), &kinds.1).1;
                (put(&["--existing"]).0, old)
            }
            "insert" => {
                let (status, _) = put(&["--new"]);
                let held = if status == "present" {
                    self.value(name, key.clone(), &kinds.1).1
                } else {
                    Gives::Nothing
                };
                (status, held)
            }
            "remove" => {
                let old = self.value(name, key.clone(), &kinds.1).1;
                let removed =
                    self.command(&["del", name], std::slice::from_ref(&key)).stderr.contains("had no value");
                (if removed { "absent" } else { "ok" }, old)
            }
            "get_many" => {
                let keys = step.data("keys", &kinds.0);
                let value = |key: &Datum<'_>| match self.value(name, text_of(key), &kinds.1).1 {
                    Gives::Datum(value) => Some(value),
                    _ => None,
                };
                ("ok", Gives::Data(keys.iter().map(value).collect()))
            }
            "remove_many" => {
                for key in step.data("keys", &kinds.0) {
                    self.command(&["del", name], &[text_of(&key)]);
                }
                DONE
            }
            "remove_range" | "remove_prefix" => self.remove_range(step, name, kinds),
            _ => self.scan(step, name, kinds),
        }
    }

    /// Returns the options that are the bounds of a step.
    fn bounds(step: &Step, kinds: &Kinds) -> Vec<String> {
        let options = [("from", "--from"), ("end", "--to"), ("prefix", "--prefix")];
        let option = |(argument, option): (&str, &str)| {
            step.datum(argument, &kinds.0).map(|key| format!("{option}={}", text_of(&key)))
        };
        options.into_iter().filter_map(option).collect()
    }

    fn remove_range(&self, step: &Step, name: &str, kinds: &Kinds) -> Outcome {
        let bounds = Self::bounds(step, kinds);
        if bounds.is_empty() {
            let counted = self.command(&["scan", name, "--count"], &[]).ok();
            self.command(&["clear", name], &[]).ok();
            return ("ok", Gives::Count(counted.trim().parse().unwrap()));
        }
        let words: Vec<&str> =
            ["del", name, "--json"].into_iter().chain(bounds.iter().map(String::as_str)).collect();
        let ran = self.command(&words, &[]);
        if ran.code != 0 {
            return outcome_of(&ran);
        }
        let line: Value = serde_json::from_str(&ran.stdout).unwrap();
        ("ok", Gives::Count(line["removed"].as_u64().unwrap()))
    }

    fn value(&self, name: &str, key: String, kind: &Kind) -> Outcome {
        let ran = self.command(&["get", name, "--json"], &[key]);
        if ran.code != 0 {
            return outcome_of(&ran);
        }
        let line: Value = serde_json::from_str(&ran.stdout).unwrap();
        ("ok", Gives::Datum(datum_of(kind, value_of(&line))))
    }

    fn scan(&self, step: &Step, name: &str, kinds: &Kinds) -> Outcome {
        let mut arguments = vec!["scan".to_owned(), name.to_owned(), "--json".to_owned()];
        arguments.extend(Self::bounds(step, kinds));
        arguments.extend(step.is_set("reverse").then(|| "--reverse".to_owned()));
        arguments.extend((step.limit() < usize::MAX).then(|| format!("--limit={}", step.limit())));
        let ran = self.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        if ran.code != 0 {
            return outcome_of(&ran);
        }
        let item = |line: &str| {
            let item: Value = serde_json::from_str(line).unwrap();
            (datum_of(&kinds.0, &item["key"]), datum_of(&kinds.1, value_of(&item)))
        };
        ("ok", Gives::Items(ran.stdout.lines().map(item).collect()))
    }
}

/// Returns a key or a value as an argument.
fn text_of(datum: &Datum<'_>) -> String {
    match datum {
        Datum::Str(text) | Datum::Json(text) => text.to_string(),
        Datum::Char(it) => it.to_string(),
        Datum::Bytes(bytes) | Datum::Postcard(bytes) => escaped(bytes),
        Datum::Unit => "()".to_owned(),
        other => match json_of(other) {
            Value::String(text) => text,
            json => json.to_string(),
        },
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

fn json_of(datum: &Datum<'_>) -> Value {
    macro_rules! numbers {
        ($($variant:ident)+) => {
            match datum {
                $(Datum::$variant(number) => serde_json::from_str(&number.to_string()).unwrap(),)+
                other => composed(other),
            }
        };
    }
    numbers!(Bool U8 U16 U32 U64 I8 I16 I32 I64)
}

fn composed(datum: &Datum<'_>) -> Value {
    match datum {
        Datum::U128(number) => number.to_string().into(),
        Datum::I128(number) => number.to_string().into(),
        Datum::F32(number) => float(f64::from(*number), number.to_string()),
        Datum::F64(number) => float(*number, format!("{number:?}")),
        Datum::Str(text) => text.as_ref().into(),
        Datum::Char(it) => it.to_string().into(),
        Datum::Bytes(bytes) => escaped(bytes).into(),
        Datum::Tuple(elements) => elements.iter().map(json_of).collect(),
        Datum::Option(None) | Datum::Unit => Value::Null,
        Datum::Option(Some(inner)) => match &**inner {
            Datum::Option(_) | Datum::Unit => vec![json_of(inner)].into(),
            inner => json_of(inner),
        },
        other => panic!("{other:?} within others"),
    }
}

fn float(number: f64, text: String) -> Value {
    match number {
        number if number.is_nan() => "NaN".into(),
        number if number.is_infinite() => (if number > 0.0 { "inf" } else { "-inf" }).into(),
        _ => serde_json::from_str(&text).unwrap(),
    }
}

/// Converts a key or a value that a command has printed as JSON.
fn datum_of(kind: &Kind, json: &Value) -> Datum<'static> {
    macro_rules! numbers {
        ($($variant:ident)+) => {
            match kind {
                $(Kind::$variant => Datum::$variant(printed(json).parse().unwrap()),)+
                _ => datum_within(kind, json),
            }
        };
    }
    numbers!(Bool U8 U16 U32 U64 U128 I8 I16 I32 I64 I128 F32 F64)
}

fn printed(json: &Value) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

fn datum_within(kind: &Kind, json: &Value) -> Datum<'static> {
    match kind {
        Kind::Unit => Datum::Unit,
        Kind::Char => Datum::Char(printed(json).parse().unwrap()),
        Kind::Str => Datum::Str(printed(json).into()),
        Kind::Postcard => Datum::Postcard(unescaped(&printed(json)).into()),
        Kind::Option(_) if json.is_null() => Datum::Option(None),
        Kind::Option(inner) => {
            let of = if matches!(**inner, Kind::Option(_) | Kind::Unit) { &json[0] } else { json };
            Datum::Option(Some(Box::new(datum_of(inner, of))))
        }
        Kind::Tuple(kinds) => {
            Datum::Tuple(kinds.iter().enumerate().map(|(at, kind)| datum_of(kind, &json[at])).collect())
        }
        Kind::Bytes | Kind::Array(_) => Datum::Bytes(unescaped(&printed(json)).into()),
        other => panic!("{other} is not compared: the tool prints it in another form"),
    }
}

/// Returns the bytes of a text with escapes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.bytes());
        let (byte, length) = match after.as_bytes()[0] {
            b'x' => (u8::from_str_radix(&after[1..3], 16).unwrap(), 3),
            b't' => (b'\t', 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            other => (other, 1),
        };
        bytes.push(byte);
        rest = &after[length..];
    }
    bytes.extend(rest.bytes());
    bytes
}
