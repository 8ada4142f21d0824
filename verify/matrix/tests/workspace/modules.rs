//! Modules of a crate may import each other in one direction only.
//!
//! A node is a file; an edge is a path that begins with `crate`, `self` or `super` and leads to another file. A
//! folder's `mod.rs` and the files beside it may import each other: that is one module in several files. Test
//! modules are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use crate::{crates, files, root};

/// The module of a file: names from the crate's root on.
type Module = Vec<String>;

/// The files of one crate.
struct Graph {
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

#[test]
fn modules_of_every_crate_without_tests_have_no_cycle() {
    let mut knots = Vec::new();
    for krate in crates() {
        let name = krate.file_name().unwrap().to_string_lossy().into_owned();
        let all = Graph::of(&krate.join("src")).knots();
        knots.extend(all.iter().map(|knot| format!("{name}: {}", knot.join(" "))));
    }
    knots.sort();
    assert!(knots.is_empty(), "modules that need each other:\n{}", knots.join("\n"));
}

/// Crates whose modules must import each item from the module that defines it.
const DIRECT: &[&str] = &[
    "lab/baselines",
    "lab/tool",
    "verify/device",
    "verify/explore",
    "verify/matrix",
    "verify/random",
    "verify/sim",
];

#[test]
fn modules_of_direct_crates_import_nothing_through_the_root() {
    let mut wrong = Vec::new();
    for krate in DIRECT {
        let src = root().join(krate).join("src");
        let all = read(&src);
        let shown: BTreeSet<_> = ["lib.rs", "main.rs"]
            .iter()
            .filter_map(|name| read_to_string(src.join(name)).ok())
            .flat_map(|text| re_exports(&text))
            .collect();
        for (module, text) in all.iter().filter(|(module, _)| !module.is_empty()) {
            let is_shown =
                |name: &String| shown.contains(name) && !all.contains_key(std::slice::from_ref(name));
            let through = |path: &Vec<String>| path[0] == "crate" && path.get(1).is_some_and(is_shown);
            let named = paths(text).into_iter().filter(through);
            wrong.extend(named.map(|path| format!("{krate}: {} by {}", path.join("::"), module.join("::"))));
        }
    }
    assert!(wrong.is_empty(), "imports through the crate's root:\n{}", wrong.join("\n"));
}

/// Returns the names that a root re-exports from its modules.
fn re_exports(text: &str) -> Vec<String> {
    let of_use = |statement: &str| {
        let mut found = Vec::new();
        expand(&mut Vec::new(), &mut statement.chars().peekable(), &mut found);
        found
    };
    let statements = text.match_indices("pub use ").map(|(at, start)| &text[at + start.len()..]);
    statements.flat_map(of_use).filter_map(|path| path.last().cloned()).collect()
}

#[test]
fn paths_of_nested_use_trees_lead_to_modules() {
    let text = "use crate::{a::{self, B}, c::D};\nfn f() { super::e::g() } // crate::h::i\nuse std::fmt;";
    let found: Vec<_> = paths(text).into_iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["crate::a::self", "crate::a::B", "crate::c::D", "super::e::g"]);
}

impl Graph {
    fn of(src: &Path) -> Self {
        let all = read(src);
        let edges = all.iter().map(|(from, text)| {
            let to = paths(text).into_iter().map(|path| resolve(&all, from, &path));
            let to = to.filter(|to| to != from && !is_of(to, from) && !is_of(from, to)).collect();
            (from.clone(), to)
        });
        Self { edges: edges.collect() }
    }

    /// Returns the cycles of modules.
    fn knots(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<_, _> = self.edges.keys().map(|from| (from, self.reach(from))).collect();
        let mut knots = BTreeSet::new();
        for (from, reaches) in &reached {
            let knot: Vec<_> = reaches.iter().filter(|to| reached[to].contains(*from)).collect();
            if knot.len() > 1 {
                knots.insert(knot.iter().map(|module| module.join("::")).collect());
            }
        }
        knots.into_iter().collect()
    }

    fn reach(&self, from: &Module) -> BTreeSet<Module> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            let next = self.edges.get(module).into_iter().flatten();
            open.extend(next.filter(|to| reached.insert((*to).clone())));
        }
        reached
    }
}

/// Reads the modules of a crate, except test modules.
fn read(src: &Path) -> BTreeMap<Module, String> {
    let read = |path: &PathBuf| (module(path.strip_prefix(src).unwrap()), read_to_string(path).unwrap());
    let is_of_code =
        |(module, _): &(Module, String)| !module.last().is_some_and(|name| name.ends_with("tests"));
    files(src, ".rs").iter().map(read).filter(is_of_code).collect()
}

/// Returns whether a module is in the folder of another one.
fn is_of(module: &Module, folder: &Module) -> bool {
    module.len() == folder.len() + 1 && module.starts_with(folder)
}

fn module(path: &Path) -> Module {
    let mut names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let last = names.pop().unwrap_or_default();
    match last.trim_end_matches(".rs") {
        "mod" | "lib" | "main" => {}
        name => names.push(name.to_owned()),
    }
    names
}

/// Returns the file that a path leads to from a module.
fn resolve(all: &BTreeMap<Module, String>, from: &Module, path: &[String]) -> Module {
    let mut at = if path[0] == "crate" { Module::new() } else { from.clone() };
    for name in path {
        let mut next = at.clone();
        match name.as_str() {
            "crate" | "self" => continue,
            "super" => _ = next.pop(),
            name => next.push(name.to_owned()),
        }
        if !all.contains_key(&next) {
            break;
        }
        at = next;
    }
    at
}

/// Returns the paths in a text that stay in its crate.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tests = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let code: Vec<_> =
        text[..tests].lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            let begins = before.is_none_or(|before| !before.is_alphanumeric() && !"_:$".contains(before));
            if begins {
                expand(&mut Vec::new(), &mut code[at..].chars().peekable(), &mut found);
            }
        }
    }
    found
}

/// Reads a path, or each path of a tree in braces.
fn expand(
    stem: &mut Vec<String>,
    text: &mut std::iter::Peekable<std::str::Chars<'_>>,
    found: &mut Vec<Vec<String>>,
) {
    let depth = stem.len();
    loop {
        let mut name = String::new();
        while let Some(next) = text.next_if(|next| next.is_alphanumeric() || *next == '_') {
            name.push(next);
        }
        if !name.is_empty() {
            stem.push(name);
        }
        match text.peek() {
            Some(':') => _ = text.next(),
            Some('{') => {
                loop {
                    text.next();
                    while text.next_if(|next| next.is_whitespace()).is_some() {}
                    expand(stem, text, found);
                    while text.next_if(|next| !",}".contains(*next)).is_some() {}
                    if text.peek() != Some(&',') {
                        break;
                    }
                }
                text.next();
                break;
            }
            _ => {
                if stem.len() > depth {
                    found.push(stem.clone());
                }
                break;
            }
        }
    }
    stem.truncate(depth);
}
