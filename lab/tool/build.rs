//! Passes the compiler's version to the laboratory, and in optimized builds the commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = said_by(Command::new(compiler).arg("--version")).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BRISTLECONE_COMPILER={version}");
    // Otherwise a build for tests would have to be repeated after each commit.
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        let commit = commit().unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env=BRISTLECONE_COMMIT={commit}");
    }
}

/// Returns the commit of this clone, marked if a source is changed; makes cargo run this again when
/// the commit may change.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| said_by(Command::new("git").args(arguments));
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Only sources affect measurements.
    const SOURCES: [&str; 5] = [":/crates", ":/verify", ":/lab", ":/Cargo.lock", ":/Cargo.toml"];
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(&[&status[..], &SOURCES[..]].concat())?;
    // The log of HEAD gets a line after each commit and change of branch.
    let of_git = ["HEAD", "logs/HEAD"].iter().filter_map(|name| git(&["rev-parse", "--git-path", name]));
    let sources =
        ["..", "../../crates", "../../verify", "../../Cargo.lock", "../../Cargo.toml"].map(str::to_owned);
    let watched = of_git.chain(sources).filter(|path| std::path::Path::new(path).exists());
    watched.for_each(|path| println!("cargo::rerun-if-changed={path}"));
    Some(if changed.is_empty() { head } else { format!("{head}-changed") })
}

/// Returns the output of a command, if it succeeds.
fn said_by(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
