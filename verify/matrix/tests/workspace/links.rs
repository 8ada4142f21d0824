//! Links and paths in documents must exist.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::PathBuf;

use crate::{files, root};

/// Returns the targets of a text's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')')).map(|(link, _)| link)
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the documents of the workspace.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut documents = files(&root.join("docs"), ".md");
    documents.extend(files(&root.join("lab/docs"), ".md"));
    documents.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    documents
}

/// Returns the paths of sources and documents in a text's code spans, from the workspace's folder.
fn paths(text: &str) -> impl Iterator<Item = String> {
    let spans =
        text.split('`').skip(1).step_by(2).filter(|span| !span.contains([' ', '\n', '*', '{', '<', ',']));
    spans.filter_map(|span| match span.split_once('/')? {
        ("crates" | "docs" | "lab" | "verify", _) => Some(span.to_owned()),
        (krate, rest)
            if krate.starts_with("bristlecone")
                && (rest.starts_with("src/") || rest.starts_with("tests/")) =>
        {
            Some(format!("crates/{span}"))
        }
        _ => None,
    })
}

#[test]
fn paths_in_documents_lead_to_files() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for document in documents() {
        for path in paths(&read_to_string(&document).unwrap()) {
            if !root().join(&path).exists() {
                wrong.push(format!("{}: {path}", document.strip_prefix(root()).unwrap().display()));
            }
            followed += 1;
        }
    }
    assert!(followed > 40, "only {followed} paths were found");
    assert!(wrong.is_empty(), "paths that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let root = root();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for document in documents() {
        let text = read_to_string(&document).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, heading) =
                link.split_once('#').map_or((link, None), |(path, head)| (path, Some(head)));
            let target =
                if path.is_empty() { document.clone() } else { document.with_file_name("").join(path) };
            let has = |heading: &str| {
                let text = read_to_string(&target).unwrap_or_default();
                let headings: BTreeSet<_> = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .map(|line| anchor(line.trim_start_matches('#')))
                    .collect();
                headings.contains(heading)
            };
            if !target.exists() || !heading.is_none_or(has) {
                wrong.push(format!("{}: {link}", document.strip_prefix(&root).unwrap().display()));
            }
            followed += 1;
        }
    }
    assert!(followed > 20, "only {followed} links were found");
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}
