//! Processes that a test starts and kills: its own program, which runs a role instead of the test.

use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Environment variable with the arguments of a process's role.
const ROLE: &str = "BRISTLECONE_ROLE";

/// A process that runs a role until it is killed, or its input ends.
pub struct Process {
    child: Child,
    output: BufReader<ChildStderr>,
}

impl Process {
    /// Starts a test of this program in another process, whose [`role`] has these arguments.
    pub fn start(test: &str, words: &[&str]) -> Self {
        Self::spawn(Self::command(test, words))
    }

    /// Returns the command that starts a test in its [`role`] with these arguments.
    pub fn command(test: &str, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, words.join("\n"));
        command
    }

    /// Starts a command as a process whose input and error output are here.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        Self { child, output }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns the next line of its output, or `None` if it has ended.
    pub fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits for a line.
    ///
    /// # Panics
    ///
    /// Panics if the process ends first.
    pub fn expect(&mut self, line: &str) {
        let mut said = Vec::new();
        loop {
            match self.hear() {
                Some(heard) if heard == line => return,
                Some(other) => said.push(other),
                None => panic!("the process ended without {line:?}: {said:#?}"),
            }
        }
    }

    /// Kills it, but not the processes that it started, which may have its input and output.
    pub fn kill_only(&mut self) {
        self.child.kill().unwrap();
        // `wait` would close its input.
        while self.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it; returns the rest of its output, line by line.
    pub fn kill(self) -> Vec<String> {
        self.kill_after(Duration::ZERO)
    }

    /// Kills it after some time, during which its output is read; returns the rest of its output, line by line.
    ///
    /// # Panics
    ///
    /// Panics if it ends by itself.
    pub fn kill_after(mut self, life: Duration) -> Vec<String> {
        let mut rest = self.output;
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            rest.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).lines().map(str::to_owned).collect()
        });
        std::thread::sleep(life);
        let ended = self.child.try_wait().unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let said: Vec<String> = reader.join().unwrap();
        if let Some(status) = ended {
            panic!("the process ended by itself, {status}: {said:#?}");
        }
        said
    }

    /// Ends its input, and waits for its end; returns the rest of its output.
    ///
    /// # Panics
    ///
    /// Panics if it does not exit successfully.
    pub fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let mut said = Vec::new();
        while let Some(line) = self.hear() {
            said.push(line);
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said:#?}");
        said
    }
}

/// Returns the arguments of this process's role, unless it runs tests.
pub fn role() -> Option<Vec<String>> {
    std::env::var(ROLE).ok().map(|words| words.lines().map(str::to_owned).collect())
}

/// Prints a line to the process that started this one, by one system call: a killed process leaves no part of it.
pub fn say(line: &str) {
    stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Returns a flag that a thread sets when the input ends: the role is to stop.
pub fn until_input_ends() -> &'static AtomicBool {
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        OVER.store(true, SeqCst);
    });
    &OVER
}
