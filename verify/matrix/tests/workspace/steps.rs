//! The `mod.rs` of a design describes its protocol in numbered steps, and its `take_over.rs`, where there is one, another. Each step named in the code, in a store, flush,
//! fence or crash point, must be one of these; and each of these must be named in the code, or in a comment beside it.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;

use crate::{files, root};

/// A part of a protocol, like `split`, and the number of a step.
type Step = (String, u32);

const DESIGNS: &[&str] = &["sstree", "nbtree", "cclbtree", "lodgetree", "wotree"];

/// Returns the steps of the protocol in a module's documentation: numbered lines below a heading, or below a part's
/// name in italics.
fn documented(text: &str) -> BTreeSet<Step> {
    let mut part = String::new();
    let mut steps = BTreeSet::new();
    for line in text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim_start) {
        let italic = line.strip_prefix('*').and_then(|line| line.strip_suffix(".*"));
        if let Some(heading) = line.strip_prefix("# ").or(italic.filter(|name| !name.contains(' '))) {
            part = heading.split(' ').next().unwrap_or_default().to_lowercase();
        } else if let Some((number, _)) = line.split_once(". ")
            && let Ok(number) = number.parse()
        {
            assert!(steps.insert((part.clone(), number)), "{part} {number} is there twice");
        }
    }
    steps
}

/// Returns the steps in string literals: `"design part.1 …"`, and of another part in the same literal.
fn named(text: &str, design: &str) -> BTreeSet<Step> {
    let begins = format!("\"{design} ");
    let literals = text.split(begins.as_str()).skip(1).filter_map(|after| after.split('"').next());
    let words = literals.flat_map(|literal| literal.split(' ')).filter_map(|word| word.split_once('.'));
    let words = words.filter(|(part, _)| part.chars().all(|c| c.is_ascii_lowercase()));
    words.filter_map(|(part, number)| Some((part.to_owned(), number.parse().ok()?))).collect()
}

/// Returns the steps mentioned in comments: `Insert 2 to 4`, `recover 1 and 2`, `grow 1, 2, 3`, `reclaim 1-3`.
fn mentioned(text: &str, parts: &BTreeSet<String>) -> BTreeSet<Step> {
    let comments: Vec<_> =
        text.lines().filter_map(|line| line.split_once("//")).map(|(_, text)| text).collect();
    let text = comments.join(" ");
    let words = text.split_whitespace().map(|word| word.trim_start_matches(['/', '!', '(', '*']));
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    let mut steps = BTreeSet::new();
    while let Some(word) = words.next() {
        let part = word.to_lowercase();
        if !parts.contains(&part) {
            continue;
        }
        let mut first = None;
        while let Some(numbers) = words.peek().and_then(|word| range(word)) {
            let from = first.take().unwrap_or(numbers.0);
            steps.extend((from..=numbers.1).map(|number| (part.clone(), number)));
            let word = words.next().unwrap_or_default();
            match words.peek() {
                Some(&"to") => first = Some(numbers.1),
                Some(&"and") => {}
                _ if word.ends_with(',') => continue,
                _ => break,
            }
            words.next();
        }
    }
    steps
}

/// Returns the numbers of a word like `2`, `2,` or `1-3)`.
fn range(word: &str) -> Option<(u32, u32)> {
    let word = word.trim_end_matches([',', '.', ':', ';', ')', '*']);
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    Some((from.parse().ok()?, to.parse().ok()?))
}

fn read(path: &Path) -> String {
    read_to_string(path).expect("a source that can be read")
}

#[test]
fn steps_of_protocols_are_those_of_the_code() {
    let mut wrong = Vec::new();
    for design in DESIGNS {
        let folder = root().join("crates/bristlecone/src/index/designs").join(design);
        let mut protocol = documented(&read(&folder.join("mod.rs")));
        let takeover = folder.join("take_over.rs");
        if takeover.exists() {
            protocol.extend(documented(&read(&takeover)));
        }
        let parts = protocol.iter().map(|(part, _)| part.clone()).collect();
        let is_code = |path: &&std::path::PathBuf| !path.ends_with("mod.rs") && !path.ends_with("tests.rs");
        let (mut in_code, mut in_comments) = (BTreeSet::new(), BTreeSet::new());
        let shared = files(&root().join("crates/bristlecone/src/index/parts"), ".rs");
        for text in files(&folder, ".rs").iter().chain(&shared).filter(is_code).map(|path| read(path)) {
            in_code.extend(named(&text, design));
            in_comments.extend(mentioned(&text, &parts));
        }
        assert!(in_code.len() > 10, "{design}: {in_code:?}");
        let unknown =
            in_code.difference(&protocol).map(|(part, at)| format!("{design} {part}.{at} is no step"));
        wrong.extend(unknown);
        let found: BTreeSet<_> = in_code.union(&in_comments).cloned().collect();
        let unfound = protocol.difference(&found);
        wrong.extend(unfound.map(|(part, at)| format!("{design} {part}.{at} is nowhere in the code")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn steps_are_found_in_docs_code_and_comments() {
    let step = |part: &str, at| (part.to_owned(), at);
    let docs = "//! # Insert (a key)\n//! 1. One,\n//!    and more.\n//! 2. Two.\n//!\n//! *Link.*\n//! 1. *One.*\n\n//! # X";
    assert_eq!(documented(docs), [step("insert", 1), step("insert", 2), step("link", 1)].into());
    let code = "persist(\"toy insert.2 key\"); (\"toy link.1\", \"toy is 1.2\", \"other insert.9\")";
    assert_eq!(named(code, "toy"), [step("insert", 2), step("link", 1)].into());
    let parts = [String::from("insert"), String::from("link")].into();
    let comments =
        "x // Insert 1 and 3: so\n/// Of (link 2-3), insert 5 to\n    /// 7; link 8, 9. Insert two";
    let found = mentioned(comments, &parts);
    let insert = [1, 3, 5, 6, 7].map(|at| step("insert", at));
    assert_eq!(found, insert.into_iter().chain([2, 3, 8, 9].map(|at| step("link", at))).collect());
}
