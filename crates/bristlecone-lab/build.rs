//! Tells the laboratory which compiler builds it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output();
    let version = version
        .map_or_else(|_| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    println!("cargo::rustc-env=BRISTLECONE_COMPILER={version}");
}
