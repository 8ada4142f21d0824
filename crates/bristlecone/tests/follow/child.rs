//! Other processes: this test's own program, which runs a role instead of a test.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Environment variable with a child's role.
const ROLE: &str = "BRISTLECONE_FOLLOW_ROLE";

/// A process that runs a role until it is killed, or its input ends.
pub struct Child {
    process: std::process::Child,
    output: BufReader<std::process::ChildStderr>,
}

impl Child {
    /// Starts a role of a test, with arguments.
    pub fn start(test: &str, words: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, words.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        Self { process, output }
    }

    /// Returns the next line of its output, or `None` if it has ended.
    pub fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a process that this one has not waited for yet.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Kills it; returns its output so far, line by line.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        let mut said = Vec::new();
        while let Some(line) = self.hear() {
            said.push(line);
        }
        self.process.wait().unwrap();
        said
    }

    /// Ends it; it must exit successfully. Returns its output.
    pub fn end(mut self) -> Vec<String> {
        drop(self.process.stdin.take());
        let mut said = Vec::new();
        while let Some(line) = self.hear() {
            said.push(line);
        }
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {said:#?}");
        said
    }
}

/// Returns the arguments of this process's role, if it is a child.
pub fn role() -> Option<Vec<String>> {
    std::env::var(ROLE).ok().map(|words| words.lines().map(str::to_owned).collect())
}

/// Prints a line to the parent.
pub fn say(line: &str) {
    eprintln!("{line}");
}

/// Returns a flag that a thread sets when the input ends: the parent wants the role to stop.
pub fn until_input_ends() -> &'static std::sync::atomic::AtomicBool {
    static OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        OVER.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    &OVER
}
