//! A step of `.ci/run` must run in full every test of which a quick run takes a share.

use std::fs::read_to_string;
use std::path::Path;

use crate::{files, root};

#[test]
fn the_wide_step_runs_every_suite_that_depends_on_the_test_level() {
    let step = read_to_string(root().join(".ci/run")).unwrap();
    let step = step.split_once("wide() {").and_then(|(_, rest)| rest.split_once("\n}\n")).expect("a step").0;
    let suite = root().join("crates/bristlecone/tests/suite");
    let mut depending = 0;
    for file in files(&suite, ".rs") {
        let text = read_to_string(&file).unwrap();
        if file.ends_with("common.rs") {
            continue;
        }
        if ["sampled()", "by_level(", "share(", "takes("].iter().any(|used| text.contains(used)) {
            // A file in a folder belongs to the module of the folder.
            let module = file.strip_prefix(&suite).unwrap().iter().next().unwrap();
            let name = Path::new(module).file_stem().unwrap().to_str().unwrap();
            assert!(step.contains(&format!(" {name}::")), "`.ci/run wide` does not run {name}");
            depending += 1;
        }
    }
    assert!(depending > 5, "only {depending} suites depend on the test level");
}
