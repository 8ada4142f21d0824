//! `reproduce` and `results`: what they leave behind, that a second call goes on, and what they refuse.

use crate::common::Bench;
use serde_json::Value;

/// Measures the smallest figure of a paper.
const SMALL: &str = "reproduce wotree --figure 10a --scale 1000 --out @out";

fn results(bench: &Bench) -> Vec<Value> {
    let text = std::fs::read_to_string(bench.path("out").join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn reproduce_leaves_results_and_a_page_that_a_second_call_keeps() {
    let bench = Bench::new();
    let said = bench.run(SMALL).ok();
    assert!(said.contains("WO-tree against native B+-tree: flushes saved"), "{said}");
    assert!(said.contains("paper 84.7"), "{said}");
    let first = results(&bench);
    let fields = [
        "paper",
        "figure",
        "series",
        "design",
        "x",
        "metric",
        "kind",
        "unit",
        "value",
        "paper_value",
        "deviation",
        "remark",
        "rounds",
        "min",
        "max",
        "arguments",
        "version",
        "commit",
        "compiler",
        "build",
        "machine",
        "date",
    ];
    for result in &first {
        assert!(fields.iter().all(|field| result.get(field).is_some()), "{result}");
        assert_eq!(
            (&result["paper"], &result["figure"], &result["kind"]),
            (&"wotree".into(), &"10a".into(), &"counted".into())
        );
        assert!(result["value"].as_f64().unwrap() > 0.0, "{result}");
    }
    let page = std::fs::read_to_string(bench.path("out").join("report.html")).unwrap();
    assert!(
        page.contains("<svg class=\"plot\"") && page.contains("class=\"paper ring"),
        "no plot, or no mark"
    );
    let outside = ["http:", "https:", "src=", "@import"];
    assert!(outside.iter().all(|word| !page.contains(word)), "the page needs something else");
    let again = bench.run(SMALL).ok();
    assert!(again.contains("1 of 1 figures are there already"), "{again}");
    assert_eq!(results(&bench), first);
    // At another scale the numbers are replaced.
    bench.run("reproduce wotree --figure 10a --scale 2000 --out @out").ok();
    let other = results(&bench);
    assert_eq!(other.len(), first.len());
    assert!(other.iter().zip(&first).all(|(new, old)| new["arguments"] != old["arguments"]));
    // The arguments of a number measure it again.
    let line = other[0]["arguments"][0].as_str().unwrap();
    let report = bench.run(&format!("{line} --json")).json();
    assert_eq!(report["per_operation"]["insert"]["flushes"], other[0]["value"]);
    let tables = bench.run("results @out/results.jsonl").ok();
    assert!(tables.contains("### 10a: ") && tables.contains("| 84.7 |"), "{tables}");
}

#[test]
fn reproduce_goes_on_where_a_call_was_cut_off() {
    let bench = Bench::new();
    bench.run(SMALL).ok();
    let path = bench.path("out").join("results.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let kept = text.lines().count() / 2;
    let cut: String = text.lines().take(kept).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, format!("{cut}{{\"paper\":\"wo")).unwrap();
    let said = bench.run(SMALL).ok();
    assert!(!said.contains("already"), "{said}");
    let dates = |results: &[Value]| results.iter().map(|result| result["value"].clone()).collect::<Vec<_>>();
    let before: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(dates(&results(&bench)), dates(&before));
}

#[test]
fn reproduce_of_what_is_not_there_lists_what_is() {
    let bench = Bench::new();
    let refused = |arguments: &str, code: i32| {
        let ran = bench.run(arguments);
        assert_eq!((ran.code, ran.stderr.lines().count()), (code, 1), "{arguments}: {}", ran.stderr);
        ran.stderr
    };
    let line = refused("reproduce lbtree --out @out", 2);
    assert!(line.contains("sstree, nbtree, cclbtree, lodgetree, wotree or all"), "{line}");
    let line = refused("reproduce nbtree --figure 99 --out @out", 2);
    assert!(line.contains("no figure \"99\" of nbtree: ") && line.contains("9a"), "{line}");
    assert!(refused("reproduce all --scale huge --out @out", 2).contains("quick, full"));
    let line = refused("reproduce cclbtree --figure 18 --scale full --out @out", 6);
    assert!(line.contains("of memory") && line.contains("would fit"), "{line}");
    assert!(!bench.path("out").exists(), "nothing was begun");
    bench.file("taken", "x");
    assert!(refused("reproduce wotree --figure 10a --scale 1000 --out @taken/out", 1).contains("taken/out"));
    std::fs::create_dir(bench.path("out")).unwrap();
    bench.file("out/results.jsonl", "{}\n");
    let line = refused(SMALL, 7);
    assert!(line.contains("results.jsonl is damaged at line 1"), "{line}");
    assert!(refused("results @out/results.jsonl", 7).contains("damaged at line 1"));
    assert!(refused("results @nothing", 4).contains("nothing"));
    let listed = bench.run("reproduce all --list").ok();
    assert!(
        ["sstree     table-II", "wotree     10a", "lodgetree  15"].iter().all(|row| listed.contains(row)),
        "{listed}"
    );
}
