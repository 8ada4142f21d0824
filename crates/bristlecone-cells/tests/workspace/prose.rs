//! How documents are written: no line of prose over 100 columns, and no idiom of `idioms.txt`.

use std::fs::read_to_string;
use std::path::PathBuf;

use crate::{files, root};

const COLUMNS: usize = 100;
const IDIOMS: &str = include_str!("idioms.txt");
/// Made by a program, which also compares it: `bristlecone-lab results`.
const GENERATED: &str = "docs/lab/RESULTS.md";

fn idioms() -> impl Iterator<Item = &'static str> {
    IDIOMS.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Returns what is wrong with a document's text, with the numbers of its lines.
fn faults(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let is_table = line.trim_start().starts_with('|');
        if !is_code && !is_table && line.chars().count() > COLUMNS {
            faults.push((at + 1, format!("{} columns", line.chars().count())));
        }
    }
    // A phrase may begin on one line and end on the next.
    let words: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .flat_map(|(at, line)| {
            let words =
                line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            words.map(move |word| (at + 1, word.to_lowercase()))
        })
        .collect();
    for idiom in idioms() {
        let phrase: Vec<&str> = idiom.split(' ').collect();
        for found in words.windows(phrase.len()) {
            if found.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()) {
                faults.push((found[0].0, format!("{idiom:?}")));
            }
        }
    }
    faults
}

fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut documents = files(&root.join("docs"), ".md");
    documents.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    documents.extend(
        ["c", "pibench", "python", "redis"].map(|name| root.join(format!("bindings/{name}/README.md"))),
    );
    documents.retain(|document| !document.ends_with(GENERATED));
    documents
}

#[test]
fn documents_are_narrow_and_plain() {
    let documents = documents();
    assert!(documents.len() > 20, "only {} documents", documents.len());
    let mut found = Vec::new();
    for document in documents {
        for (line, fault) in faults(&read_to_string(&document).unwrap()) {
            found.push(format!("{}:{line}: {fault}", document.strip_prefix(root()).unwrap().display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn faults_are_found() {
    let wide = "x ".repeat(51);
    let text = format!("It is given\nback at  once.\n| {wide} |\n```\n{wide}\n```\n{wide}\n");
    let found: Vec<usize> = faults(&text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(found, [7, 1, 2]);
    assert!(faults("Someone frees it immediately, atonce, and forgoes on-line use.").is_empty());
}
