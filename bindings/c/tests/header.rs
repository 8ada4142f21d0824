//! `include/bristlecone.h` is what the sources say. `BRISTLECONE_WRITE_HEADER=1` writes it.

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
