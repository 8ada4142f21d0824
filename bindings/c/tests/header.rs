//! `include/bristlecone.h` must match the sources (`BRISTLECONE_WRITE_HEADER=1` writes it), and its status codes must
//! match the tool's and the README's.

use std::path::Path;

#[test]
fn the_header_is_made_of_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_crate(here)
        .with_parse_deps(false)
        .generate()
        .unwrap()
        .write(&mut made);
    let (made, path) = (String::from_utf8(made).unwrap(), here.join("include/bristlecone.h"));
    if std::env::var_os("BRISTLECONE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(made.contains("int bristlecone_get_u64("), "{made}");
    assert!(std::fs::read_to_string(&path).unwrap() == made, "the header is out of date: `make header`");
}

/// Returns the status codes of the header: names without `BRISTLECONE_`, and numbers.
fn statuses(header: &str) -> Vec<(String, i32)> {
    let name_of = |line: &str| {
        let (name, number) = line.strip_prefix("#define BRISTLECONE_")?.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let from = header.lines().skip_while(|line| !line.starts_with("#define BRISTLECONE_OK "));
    let all: Vec<_> = from.filter_map(name_of).collect();
    let end = all.iter().position(|(name, _)| name == "NO_WRITER").expect("the last status");
    all.into_iter().take(end + 1).collect()
}

#[test]
fn statuses_are_the_exit_codes_of_the_tool() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let statuses = statuses(&read("include/bristlecone.h"));
    let tool = read("../../crates/bristlecone-cli/src/failure.rs");
    let mut compared = 0;
    for (name, number) in statuses.iter().filter(|(name, number)| name != "OK" && *number < 32) {
        let words = name.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase());
        let variant = format!("\n    {} = {number},", words.collect::<String>());
        assert!(tool.contains(&variant), "the tool has no exit code{variant}");
        compared += 1;
    }
    assert_eq!(compared, 6);
    let readme = read("README.md");
    for (name, number) in &statuses {
        assert!(readme.contains(&format!("| {number} | `BRISTLECONE_{name}`")), "README.md lacks {name}");
    }
}
