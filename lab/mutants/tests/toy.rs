//! Runs the tool on a workspace of one small crate.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const OWNERS: &str = r#"
[host]
path = "crates/toy"
name = "toy"

[[owner]]
files = ["crates/toy/src/lib.rs"]
tests = ["toy/lib"]
"#;

const LIB: &str = r#"//! A toy.
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How many of `values` are below `limit`, looked at from `first` on.
pub fn below(values: &[u32], first: usize, limit: u32) -> Result<usize, &'static str> {
    if first > values.len() {
        return Err("out of range");
    }
    let mut found = 0;
    for at in first..values.len() {
        if values[at] < limit {
            found += 1;
        }
    }
    Ok(found)
}

/// The order of the two calls matters, and that of the last two does not.
pub fn order(trace: &Cell<u32>) {
    trace.set(trace.get() * 2);
    trace.set(trace.get() + 3);
    trace.replace(trace.get());
}

/// Goes to the end.
pub fn last(values: &[u32]) -> usize {
    let mut at = 0;
    while at + 1 < values.len() {
        at += 1;
    }
    at
}

/// Moves a value, so that its neighbour cannot come first.
pub fn moved(text: String) -> String {
    let kept;
    kept = text;
    kept
}

/// Ends a borrow before the next line, which is where the compiler points if it does not end.
pub fn ended(first: &Rc<RefCell<u32>>, second: &Rc<RefCell<u32>>) -> u32 {
    let mut cell = Rc::clone(first);
    let held = cell.borrow();
    let sum = *held;
    drop(held);
    cell = Rc::clone(second);
    sum + *cell.borrow()
}

/// No test comes here.
pub fn alone(flag: bool) -> bool {
    !flag
}

const fn fixed() -> usize {
    1 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let values = [1, 5, 3, 9];
        assert_eq!(below(&values, 0, 5), Ok(2));
        assert_eq!(below(&values, 1, 10), Ok(3));
        assert_eq!(below(&values, 4, 5), Ok(0));
        assert!(below(&values, 5, 5).is_err());
        assert_eq!(below(&values, fixed(), 9), Ok(1));
    }

    #[test]
    fn keeps_order() {
        let trace = Cell::new(5);
        order(&trace);
        assert_eq!(trace.get(), 13);
        assert_eq!(last(&[1, 2, 3]), 2);
        assert_eq!(moved("a".to_owned()), "a");
        assert_eq!(ended(&Rc::new(RefCell::new(1)), &Rc::new(RefCell::new(2))), 3);
    }
}
"#;

struct Toy(TempDir);

impl Toy {
    fn new() -> Self {
        let toy = Self(tempfile::tempdir().unwrap());
        toy.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
        toy.write(
            "crates/toy/Cargo.toml",
            "[package]\nname = \"toy\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
        );
        toy.write("crates/toy/src/lib.rs", LIB);
        toy.write("owners.toml", OWNERS);
        toy.write("explained.toml", "");
        toy
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs the tool, and returns its exit code and output.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let ended = Command::new(env!("CARGO_BIN_EXE_bristlecone-mutants"))
            .current_dir(self.path())
            .args(["--owners", "owners.toml", "--explained", "explained.toml"])
            .args(arguments)
            .output()
            .unwrap();
        let output = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (ended.status.code().unwrap(), output)
    }
}

/// Returns the lines of an output that begin with a word.
fn lines<'s>(output: &'s str, word: &str) -> Vec<&'s str> {
    output.lines().filter(|line| line.starts_with(word)).collect()
}

#[test]
fn every_kind_of_change_is_listed_and_drawn_by_the_seed() {
    let toy = Toy::new();
    let (code, all) = toy.run(&["--list"]);
    assert_eq!(code, 0);
    for change in [
        "check: `first > values.len()` -> `false`",
        "comparison: `first > values.len()` -> `first >= values.len()`",
        "bound: `values.len()` -> `first..values.len() - 1`",
        "bound: `first` -> `first + 1..values.len()`",
        "branch: `values[at] < limit` -> `false`",
        "deletion: `found += 1;` -> ``",
        "swap: `trace.set(trace.get() * 2); trace.set(trace.get() + 3);`",
        "off-by-one: `at + 1` -> `at`",
        "off-by-one: `at + 1` -> `at + 2`",
        "negation: `!flag` -> `flag`",
    ] {
        assert!(all.contains(change), "{change} is not in:\n{all}");
    }
    assert!(!all.contains("1 + 1"), "a constant is not mutated:\n{all}");
    assert!(!all.contains("assert"), "tests are not mutated:\n{all}");

    let drawn = |sample: &str, seed: &str| toy.run(&["--list", "--sample", sample, "--seed", seed]).1;
    assert_eq!(drawn("4", "1").lines().count(), 4);
    assert!(drawn("6", "1").starts_with(&drawn("4", "1")), "a larger sample contains a smaller one");
    assert_ne!(drawn("4", "1"), drawn("4", "2"));
}

#[test]
fn changes_are_noticed_and_survivors_are_explained_once() {
    let toy = Toy::new();
    let (code, output) = toy.run(&[]);
    assert_eq!(code, 1, "{output}");
    // Mutants that do not compile are skipped: without its assignment the name is never set.
    assert!(!output.contains("kept = text") && !output.contains("drop(held)"), "{output}");
    let survived = lines(&output, "SURVIVED");
    assert_eq!(survived.len(), 2, "{output}");
    assert!(survived.iter().all(|line| line.contains("trace.replace(trace.get());")), "{output}");
    let unreached = lines(&output, "UNREACHED");
    assert_eq!(unreached.len(), 1, "{output}");
    assert!(unreached[0].contains("negation: `!flag`"), "{output}");
    // An endless loop is detected by its time.
    let counts = |output: &str| -> Vec<usize> {
        let line = lines(output, "all")[0].split_whitespace();
        line.skip(1).map(|count| count.parse().unwrap()).collect()
    };
    let [mutants, killed, timed_out, ..] = counts(&output)[..] else { panic!("{output}") };
    assert!(killed > 10 && timed_out > 0 && killed + timed_out + 3 == mutants, "{output}");

    // An interrupted run continues: half of the results are missing, and the end of one more.
    let results = toy.path().join("target/mutants/results.jsonl");
    let known = std::fs::read_to_string(&results).unwrap();
    assert_eq!(known.lines().count(), mutants);
    let mut half: Vec<&str> = known.lines().filter(|line| line.contains("timed-out")).collect();
    half.extend(known.lines().filter(|line| !line.contains("timed-out")).take(mutants / 2));
    let cut = half.join("\n") + &known.lines().next_back().unwrap()[..20];
    std::fs::write(&results, cut).unwrap();
    let (code, again) = toy.run(&[]);
    assert_eq!((code, counts(&again)), (1, counts(&output)), "{again}");
    let lines_of = |text: &str| text.lines().count();
    assert_eq!(lines_of(&std::fs::read_to_string(&results).unwrap()), mutants + 1, "one line is broken");

    // Results are kept, and explanations clear known survivors.
    let entry = |line: &str, kind: &str| {
        format!(
            "[[mutant]]\nfile = \"crates/toy/src/lib.rs\"\nline = \"{line}\"\nkind = \"{kind}\"\nreason = \"same\"\n"
        )
    };
    let right = entry("trace.replace(trace.get());", "deletion")
        + &entry("trace.set(trace.get() + 3);", "swap")
        + &entry("!flag", "negation");
    toy.write("explained.toml", &right);
    let (code, output) = toy.run(&["--report"]);
    assert_eq!(code, 0, "{output}");
    assert_eq!(counts(&output), [mutants, killed, timed_out, 0, 0, 3, 0]);

    // An explained mutant that is detected, or no longer exists, is reported.
    toy.write("explained.toml", &(right + &entry("found += 1;", "deletion") + &entry("gone();", "swap")));
    let (code, output) = toy.run(&["--report"]);
    assert_eq!(code, 1, "{output}");
    assert_eq!(lines(&output, "STALE").len(), 2, "{output}");
}

#[test]
fn a_test_that_takes_too_long_is_left_out_until_it_may() {
    let toy = Toy::new();
    let slow = "fn counts() {\n        std::thread::sleep(std::time::Duration::from_millis(200));";
    toy.write("crates/toy/src/lib.rs", &LIB.replace("fn counts() {", slow));
    let comparison = ["--kind", "comparison"];
    let (_, output) = toy.run(&[&comparison[..], &["--longest", "0"]].concat());
    assert!(output.contains("takes more than 0 s, and is left out: toy/lib tests::counts"), "{output}");
    let missed =
        |output: &str| lines(output, "UNREACHED").iter().filter(|line| line.contains("limit")).count();
    assert!(missed(&output) > 0, "{output}");
    let (_, output) = toy.run(&[&comparison[..], &["--retry"]].concat());
    assert!(missed(&output) == 0 && !output.contains("left out"), "{output}");
}
