//! Runs the tool like a user.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::TOOL;

/// A directory for pools and files, in shared memory if possible; removed at the end.
pub struct Bench {
    directory: TempDir,
}

/// Result of a run of the tool.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { directory: directory.unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Returns the tool's command with these arguments, in which `@name` is a path in the
    /// directory.
    pub fn command(&self, arguments: &str) -> Command {
        self.command_of(Path::new(TOOL.0), arguments)
    }

    /// Returns the same for a tool at another path.
    pub fn command_of(&self, tool: &Path, arguments: &str) -> Command {
        let mut command = Command::new(tool);
        for argument in arguments.split_whitespace() {
            match argument.strip_prefix('@') {
                Some(name) => command.arg(self.path(name)),
                None => command.arg(argument),
            };
        }
        command
    }

    pub fn run(&self, arguments: &str) -> Ran {
        self.run_on(arguments, b"", &[])
    }

    /// Does the same with standard input, and with arguments that contain spaces.
    pub fn run_on(&self, arguments: &str, input: &[u8], more: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        command.args(more);
        Ran::of(command, input)
    }
}

impl Ran {
    /// Runs it to its end.
    pub fn of(mut command: Command, input: &[u8]) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A tool may stop reading and close the pipe.
            scope.spawn(move || drop(pipe.write_all(input)));
            Self::ended(child)
        })
    }

    /// Waits for the end of a run.
    pub fn ended(child: Child) -> Self {
        let output = child.wait_with_output().unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts success without any output on standard error; returns the output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == 0 && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }

    /// Asserts success; returns the output, one JSON value.
    #[track_caller]
    pub fn json(self) -> Value {
        let output = self.ok();
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }

    /// Asserts failure with this exit code and exactly one line, which contains `part`.
    #[track_caller]
    pub fn refused(self, code: i32, part: &str) {
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(self.code, code, "{self:?}");
        assert!(lines.len() == 1 && lines[0].starts_with(&format!("{}: ", TOOL.1)), "{self:?}");
        assert!(lines[0].contains(part), "{part:?} is not in {self:?}");
    }
}
