//! The mutated copy of the workspace: written, freed of mutants that do not compile, and built once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::find::{self, File};
use crate::mutant::Mutant;
use crate::plan::{Plan, entries};
use crate::rewrite::{Marks, rewrite};

const SWITCH: &str = include_str!("injected/mutants.rs");

/// Maximum number of rounds of dropping mutants that do not compile. The compiler reports errors phase by phase, crate
/// by crate.
const ROUNDS_MAX: usize = 40;

/// A workspace and its mutated copy.
pub struct Copy {
    root: PathBuf,
    /// Folder of the copy.
    pub source: PathBuf,
    target: PathBuf,
    jobs: usize,
    plan: Plan,
    files: Vec<File>,
    /// All mutants; the number of a mutant is its index.
    pub mutants: Vec<Mutant>,
    /// Mutants that do not compile.
    pub refused: HashSet<u32>,
    /// The mutants in the copy, if it does not contain all that compile.
    only: Option<HashSet<u32>>,
}

/// A program of tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    pub package: String,
    /// `lib`, or the name of the file of tests.
    pub target: String,
    pub path: PathBuf,
    /// Its working directory.
    pub folder: PathBuf,
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.package, self.target)
    }
}

impl Copy {
    /// Finds the mutants of the workspace at `root`.
    pub fn of(root: &Path, work: &Path, plan: Plan, jobs: usize) -> Result<Self, String> {
        let mut mutants = Vec::new();
        let mut files = Vec::new();
        for path in plan.files(root)? {
            let source = read(&root.join(&path))?;
            files.push(find::find(&path, source, &mut mutants)?);
        }
        Ok(Self {
            root: root.to_owned(),
            source: work.join("src"),
            target: work.join("build"),
            jobs,
            plan,
            files,
            mutants,
            refused: HashSet::new(),
            only: None,
        })
    }

    /// Returns the table by which the copy is made.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Writes the copy, and drops mutants until it compiles. `report` is called with every round.
    pub fn write(&mut self, report: &dyn Fn(&str)) -> Result<(), String> {
        self.copy_folder(&self.root)?;
        let lib = format!("{}/src/lib.rs", self.plan.host.path);
        let packages: BTreeSet<String> = self.files.iter().map(|file| package_of(&file.path)).collect();
        for round in 1..=ROUNDS_MAX {
            self.write_files(&lib)?;
            let errors = self.check(&packages)?;
            if errors.is_empty() {
                return self.remember();
            }
            let culprits = self.culprits(&errors);
            if culprits.is_empty() {
                return Err(format!(
                    "the copy does not compile for another reason:\n{}",
                    rendered(&errors[0])
                ));
            }
            report(&format!("round {round}: {} mutants do not compile", culprits.len()));
            self.refused.extend(culprits);
        }
        Err(format!("after {ROUNDS_MAX} rounds of dropping mutants the copy does not compile"))
    }

    /// Builds the tests that own mutated files.
    pub fn build(&self) -> Result<Vec<Program>, String> {
        let mut wanted = BTreeSet::new();
        for owner in &self.plan.owners {
            wanted.extend(owner.tests()?.into_iter().map(|tests| (tests.package, tests.target)));
        }
        let mut programs = Vec::new();
        for (package, target) in wanted {
            let mut command = self.cargo(&["test", "--no-run", "--package", &package]);
            match target.as_str() {
                "lib" => command.arg("--lib"),
                target => command.args(["--test", target]),
            };
            let (success, messages) = output(&mut command)?;
            if !success {
                let why = messages.iter().find(|message| is_error(message)).map(rendered).unwrap_or_default();
                return Err(format!("the tests {package}/{target} do not build: {why}"));
            }
            let built = messages.iter().rfind(|message| message["executable"].is_string());
            let built = built.ok_or_else(|| format!("no program {package}/{target} was built"))?;
            let path = |name: &str| PathBuf::from(built[name].as_str().unwrap_or_default());
            let folder = path("manifest_path").parent().expect("a manifest in a folder").to_owned();
            programs.push(Program { path: path("executable"), package, target, folder });
        }
        let text = serde_json::to_string_pretty(&programs).map_err(|error| error.to_string())?;
        write(&self.programs_path(), text)?;
        Ok(programs)
    }

    /// Returns the programs of the last build.
    pub fn built(&self) -> Result<Vec<Program>, String> {
        serde_json::from_str(&read(&self.programs_path())?).map_err(|error| format!("programs.json: {error}"))
    }

    fn programs_path(&self) -> PathBuf {
        self.source.with_file_name("programs.json")
    }

    /// Returns the mutants that compile.
    pub fn living(&self) -> impl Iterator<Item = &Mutant> {
        self.mutants.iter().filter(|mutant| !self.refused.contains(&mutant.id))
    }

    /// Removes all other mutants from the copy, which then compiles and runs faster.
    pub fn keep_only(&mut self, mutants: HashSet<u32>) {
        self.only = Some(mutants);
    }

    /// Returns whether the mutants that do not compile are known.
    pub fn knows_refused(&self) -> bool {
        self.refused_path().is_file()
    }

    /// Returns the path of the list of mutants that do not compile, so that they are determined once.
    fn refused_path(&self) -> PathBuf {
        self.source.with_file_name("refused.json")
    }

    /// Reads the list of mutants that do not compile.
    pub fn recall(&mut self) -> Result<(), String> {
        let Ok(text) = std::fs::read_to_string(self.refused_path()) else { return Ok(()) };
        let keys: HashSet<String> =
            serde_json::from_str(&text).map_err(|error| format!("refused.json: {error}"))?;
        let refused = self.mutants.iter().filter(|mutant| keys.contains(&mutant.key()));
        self.refused = refused.map(|mutant| mutant.id).collect();
        Ok(())
    }

    fn remember(&self) -> Result<(), String> {
        let refused = self.mutants.iter().filter(|mutant| self.refused.contains(&mutant.id));
        let keys: BTreeSet<String> = refused.map(Mutant::key).collect();
        let text = serde_json::to_string_pretty(&keys).map_err(|error| error.to_string())?;
        write(&self.refused_path(), &text)
    }

    /// Copies unmutated files, except build output and hidden files.
    fn copy_folder(&self, folder: &Path) -> Result<(), String> {
        let mutated: HashSet<PathBuf> = self.files.iter().map(|file| self.root.join(&file.path)).collect();
        let lib = self.root.join(&self.plan.host.path).join("src/lib.rs");
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                self.copy_folder(&path)?;
            } else if !mutated.contains(&path) && path != lib {
                let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let within = path.strip_prefix(&self.root).unwrap_or(&path);
                write(&self.source.join(within), &bytes)?;
            }
        }
        Ok(())
    }

    fn write_files(&self, lib: &str) -> Result<(), String> {
        let host = package_of(lib);
        let mut left_out = self.refused.clone();
        if let Some(only) = &self.only {
            left_out.extend(self.mutants.iter().map(|mutant| mutant.id).filter(|id| !only.contains(id)));
        }
        let mut lib_text = None;
        for file in &self.files {
            let path = if package_of(&file.path) == host { "crate" } else { &self.plan.host.name };
            let switch = format!("{}{path}::mutants::on", if path == "crate" { "" } else { "::" });
            let text = rewrite(file, &switch, &left_out);
            if file.path == lib {
                lib_text = Some(text);
            } else {
                write(&self.source.join(&file.path), &text)?;
            }
        }
        let lib_text = lib_text.map_or_else(|| read(&self.root.join(lib)), Ok)?;
        write(&self.source.join(lib), format!("{lib_text}\n#[doc(hidden)]\npub mod mutants;\n"))?;
        let switch = format!("{SWITCH}\nconst COUNT: usize = {};\n", self.mutants.len());
        write(&self.source.join(&self.plan.host.path).join("src/mutants.rs"), &switch)
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).args(["--message-format", "json", "--jobs", &self.jobs.to_string()]);
        command.current_dir(&self.source).env("CARGO_TARGET_DIR", &self.target);
        // Mutants cause many warnings about unused and unreachable code; they are debugged in the source.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
        command.env("CARGO_INCREMENTAL", "0");
        command
    }

    /// Returns the errors of a check of the mutated packages.
    fn check(&self, packages: &BTreeSet<String>) -> Result<Vec<Value>, String> {
        let mut command = self.cargo(&["check", "--keep-going", "--lib"]);
        command.args(packages.iter().flat_map(|package| ["--package", package]));
        let (success, mut messages) = output(&mut command)?;
        messages.retain(is_error);
        if !success && messages.is_empty() {
            return Err("cargo check failed without an error of the compiler".to_owned());
        }
        Ok(if success { Vec::new() } else { messages })
    }

    /// Returns the mutants to which errors point: by their primary span, otherwise by any span, otherwise by the lines
    /// of any span, otherwise by the code between spans, such as the end of a borrow that was deleted.
    fn culprits(&self, errors: &[Value]) -> HashSet<u32> {
        let mut marks: HashMap<String, (Marks, String)> = HashMap::new();
        let mut found = HashSet::new();
        for error in errors {
            let mut spans = Vec::new();
            spans_of(&error["message"], &mut spans);
            let mut places = Vec::new();
            for span in spans {
                let Some(file) = span["file_name"].as_str() else { continue };
                let (Some(start), Some(end)) = (span["byte_start"].as_u64(), span["byte_end"].as_u64())
                else {
                    continue;
                };
                let load = || {
                    let text = std::fs::read_to_string(self.source.join(file)).unwrap_or_default();
                    (Marks::of(&text), text)
                };
                marks.entry(file.to_owned()).or_insert_with(load);
                places.push((file.to_owned(), start as usize..end as usize, span["is_primary"] == true));
            }
            let at = |place: &&(String, Range<usize>, bool)| marks[&place.0].0.at(&place.1);
            let primary = places.iter().filter(|place| place.2).find_map(|place| at(&place));
            let by_place = primary.or_else(|| places.iter().find_map(|place| at(&place)));
            if let Some(id) = by_place {
                found.insert(id);
                continue;
            }
            let among = |file: &str, place: &Range<usize>| {
                let (marks, text) = &marks[file];
                marks.among(&lines_around(text, place))
            };
            let mut by_line: Vec<u32> =
                places.iter().flat_map(|(file, place, _)| among(file, place)).collect();
            if by_line.is_empty()
                && let Some((file, ..)) = places.iter().find(|place| place.2)
            {
                let there = || places.iter().filter(|place| place.0 == *file).map(|(_, place, _)| place);
                let start = there().map(|place| place.start).min().unwrap_or(0);
                let end = there().map(|place| place.end).max().unwrap_or(start);
                by_line.extend(among(file, &(start..end)));
            }
            found.extend(by_line);
        }
        found
    }
}

fn lines_around(text: &str, place: &Range<usize>) -> Range<usize> {
    let start = text[..place.start.min(text.len())].rfind('\n').map_or(0, |at| at + 1);
    let end = place.end.min(text.len());
    start..text[end..].find('\n').map_or(text.len(), |at| end + at)
}

/// Returns the spans of a compiler message, and of its notes.
fn spans_of(message: &Value, spans: &mut Vec<Value>) {
    spans.extend(message["spans"].as_array().into_iter().flatten().cloned());
    message["children"].as_array().into_iter().flatten().for_each(|child| spans_of(child, spans));
}

fn is_error(message: &Value) -> bool {
    let spans = message["message"]["spans"].as_array();
    message["message"]["level"] == "error" && spans.is_some_and(|spans| !spans.is_empty())
}

fn rendered(message: &Value) -> String {
    message["message"]["rendered"].as_str().unwrap_or_default().to_owned()
}

/// Runs cargo; returns whether it succeeded, and its messages.
fn output(command: &mut Command) -> Result<(bool, Vec<Value>), String> {
    let output = command.stderr(Stdio::piped()).output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() && !messages.iter().any(is_error) {
        return Err(format!("cargo failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok((output.status.success(), messages))
}

/// Returns the package of a file: packages are named like their folders.
fn package_of(path: &str) -> String {
    path.split('/').nth(1).unwrap_or_default().to_owned()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file unless it already has these contents: cargo rebuilds newer files.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    let bytes = bytes.as_ref();
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}
