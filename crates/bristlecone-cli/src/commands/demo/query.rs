//! A few example queries.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;
use std::time::Instant;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted};
use bristlecone_cli::size;

use super::walk::Entry;
use super::{Files, milliseconds};
use crate::commands::range::under_prefix;
use crate::datum::{Datum, Shown};

const SHOWN: usize = 3;

/// Runs and prints queries: a prefix scan, its largest file, and its last entries in reverse.
pub fn show(output: &mut Output, tree: &Files, directory: &Path, entries: &[Entry]) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let prefix = busiest(directory.as_os_str().as_bytes(), entries);
    let shown = text(&prefix);
    let bounds = under_prefix(Datum::Bytes(prefix.into())).unwrap_or((Bound::Unbounded, Bound::Unbounded));
    let bounds = (bytes(&bounds.0), bytes(&bounds.1));

    let started = Instant::now();
    let (mut count, mut total) = (0, 0);
    let mut largest: Vec<(u64, Vec<u8>)> = Vec::new();
    for item in tree.range(bounds) {
        let (path, value) = item?;
        let size = Entry::bytes_of(&value);
        (count, total) = (count + 1, total + size);
        if largest.len() < SHOWN || size > largest[SHOWN - 1].0 {
            largest.push((size, path));
            largest.sort_by_key(|entry| std::cmp::Reverse(entry.0));
            largest.truncate(SHOWN);
        }
    }
    let took = milliseconds(started.elapsed());
    output.line("")?;
    let paths = counted(count, "path", "paths");
    output.line(format_args!("under {shown}: {paths}, {} together, scanned in {took}", size::show(total)))?;
    output.line("the largest of them:")?;
    for (size, path) in &largest {
        output.line(format_args!("  {:>9}  {}", size::show(*size), text(path)))?;
    }
    let started = Instant::now();
    let last = tree.range(bounds).rev().take(SHOWN).collect::<bristlecone::Result<Vec<_>>>()?;
    output.line(format_args!("the last of them, backwards, in {}:", milliseconds(started.elapsed())))?;
    for (path, value) in &last {
        output.line(format_args!("  {:>9}  {}", size::show(Entry::bytes_of(value)), text(path)))?;
    }
    Ok(())
}

fn bytes(bound: &Bound<Datum>) -> Bound<&[u8]> {
    bound.as_ref().map(|datum| match datum {
        Datum::Bytes(bytes) => &**bytes,
        _ => &[],
    })
}

/// Returns a path as one line.
fn text(path: &[u8]) -> String {
    Shown(&Datum::Bytes(path.to_vec().into())).to_string()
}

/// Returns the subdirectory of `directory` with the most entries, with a trailing slash.
fn busiest(directory: &[u8], entries: &[Entry]) -> Vec<u8> {
    let mut root = directory.to_vec();
    if !root.ends_with(b"/") {
        root.push(b'/');
    }
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    for entry in entries {
        let below = entry.path.strip_prefix(root.as_slice()).unwrap_or_default();
        if let Some(slash) = below.iter().position(|byte| *byte == b'/') {
            *counts.entry(&below[..=slash]).or_default() += 1;
        }
    }
    if let Some((name, _)) = counts.into_iter().max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)))
    {
        root.extend_from_slice(name);
    }
    root
}
