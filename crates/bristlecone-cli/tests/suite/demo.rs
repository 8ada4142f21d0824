//! `demo`: the first command that a new user runs.

use crate::common::Bench;

#[test]
fn a_demo_reports_and_cleans_up() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("files")).unwrap();
    for file in 0..200 {
        bench.file(&format!("files/{file:03}"), "x".repeat(file));
    }
    let said = bench.run("demo @files --pool @p").ok();
    assert!(
        said.contains("201 paths") && said.contains("SIGKILL") && said.contains("nothing lost"),
        "{said}"
    );
    assert!(!bench.path("p").exists());
    let report = bench.run("demo @files --pool @p --keep --domain adr --json").json();
    let names: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["acknowledged", "recovered", "lost", "recovery_ms", "entries", "medium", "domain"]);
    assert_eq!((report["entries"].as_u64(), report["lost"].as_u64()), (Some(201), Some(0)));
    assert_eq!(report["domain"], "adr");
    let path = bench.path("files/150");
    let found = bench.run_on("get @p files", b"", &[path.to_str().unwrap()]).ok();
    assert!(found.starts_with("150 "), "{found}");
    bench.run("demo @files --pool @p").refused(2, "exists already");
    bench.run("demo @files --pool @no/p").refused(4, "no folder");
    assert!(bench.path("p").exists(), "what was there before stays");
}

#[test]
fn a_demo_needs_something_to_index() {
    let bench = Bench::new();
    bench.run("demo @absent").refused(4, "absent");
    bench.run(&format!("demo {}", bench.file("file", "").display())).refused(2, "is not a directory");
    std::fs::create_dir(bench.path("empty")).unwrap();
    bench.run("demo @empty").refused(2, "too little");
    bench.run("demo @empty --design oak").refused(2, "--help");
}
