//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::mutant::{Kind, Mutant};
use crate::plan::fits;

/// Changes the sources in small ways, one at a time, and reports the changes that no test detects.
///
/// All changes are compiled into one copy of the workspace, each behind a switch. Results are kept: an interrupted
/// run continues where it stopped. Exit code 1: a change was neither detected nor explained; 2: an error.
#[derive(Debug, Parser)]
#[command(name = "bristlecone-mutants", version)]
pub struct Args {
    /// Folder of the workspace.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub root: PathBuf,
    /// Folder of the copy, its builds and the results [default: target/mutants in the workspace].
    #[arg(long, value_name = "FOLDER")]
    pub work: Option<PathBuf>,
    /// Table of mutated files and the tests that own them [default: the built-in table].
    #[arg(long, value_name = "FILE")]
    pub owners: Option<PathBuf>,
    /// Explained survivors [default: lab/mutants/explained.toml].
    #[arg(long, value_name = "FILE")]
    pub explained: Option<PathBuf>,
    /// Only files whose paths contain this, or match it if it has a `*`.
    #[arg(long, value_name = "GLOB")]
    pub file: Vec<String>,
    /// Only the files of a design.
    #[arg(long, value_name = "NAME")]
    pub design: Vec<String>,
    /// Only changes of a kind.
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Vec<Kind>,
    /// Only one mutant, by its number in the list.
    #[arg(long, value_name = "NUMBER")]
    pub id: Vec<u32>,
    /// Only this many of those, drawn by the seed; a larger sample contains a smaller one.
    #[arg(long, value_name = "COUNT")]
    pub sample: Option<usize>,
    /// Seed of the sample, and of the order of the runs.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Number of tests that run at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub jobs: usize,
    /// Number of crates that compile at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub build_jobs: usize,
    /// Build only the selected mutants: faster for a sample, but another sample needs another build.
    #[arg(long)]
    pub sparse: bool,
    /// Omit tests that take more processor time than this without any mutant; at least that much is spent on each
    /// of them once.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub longest: u64,
    /// Repeat undetected and timed-out mutants.
    #[arg(long)]
    pub retry: bool,
    /// Run the last build, ignoring later changes of the sources.
    #[arg(long)]
    pub built: bool,
    /// List the mutants without building or running.
    #[arg(long, conflicts_with = "report")]
    pub list: bool,
    /// Report the known results without building or running.
    #[arg(long)]
    pub report: bool,
}

fn kind(name: &str) -> Result<Kind, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

impl Args {
    /// Returns the selected mutants, in the order of their runs.
    pub fn chosen<'m>(&self, mutants: impl Iterator<Item = &'m Mutant>) -> Vec<&'m Mutant> {
        let mut chosen: Vec<&Mutant> = mutants.filter(|mutant| self.wants(mutant)).collect();
        chosen.sort_by_key(|mutant| (drawn(&mutant.key(), self.seed), mutant.id));
        chosen.truncate(self.sample.unwrap_or(usize::MAX));
        chosen
    }

    fn wants(&self, mutant: &Mutant) -> bool {
        let any = |empty: bool, fits: bool| empty || fits;
        any(self.file.is_empty(), self.file.iter().any(|glob| fits(glob, &mutant.file)))
            && any(self.design.is_empty(), self.design.iter().any(|name| is_of_design(name, &mutant.file)))
            && any(self.kind.is_empty(), self.kind.contains(&mutant.kind))
            && any(self.id.is_empty(), self.id.contains(&mutant.id))
    }
}

fn is_of_design(name: &str, file: &str) -> bool {
    file.contains(&format!("/designs/{name}/"))
}

/// Returns a pseudorandom number of a mutant: FNV-1a of its key, mixed with the seed.
fn drawn(key: &str, seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in key.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (hash >> 29)
}
