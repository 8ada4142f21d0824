//! A supervisor that keeps descriptors for the service of the example, as systemd does, and restarts it after kills.

use std::collections::BTreeMap;
use std::io::{BufReader, IoSliceMut, LineWriter, stderr, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bristlecone_matrix::process::{self, Process};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::common::{Noise, Scratch};

#[path = "../../examples/descriptor_store.rs"]
#[allow(dead_code, reason = "a program of its own")]
mod service;

const KILLS: &str = "supervisor::a_service_finds_pool_and_index_after_each_kill";
const DEATH: &str = "supervisor::a_service_continues_when_its_supervisor_dies";

/// What a supervisor has: its socket, and the descriptors that its service stored.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
    stored: BTreeMap<String, OwnedFd>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Supervisor {
    fn new(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, path: path.to_owned(), stored: BTreeMap::new() }
    }

    /// Handles messages of the service up to one that has this line.
    fn handle_until(&mut self, last: &str) {
        loop {
            let mut bytes = [0; 200];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let len = recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            let message = String::from_utf8(bytes[..len].to_vec()).unwrap();
            let lines: Vec<&str> = message.lines().collect();
            match (&lines[..], descriptor) {
                (["FDSTORE=1", name], Some(descriptor)) => {
                    self.stored.insert(name.strip_prefix("FDNAME=").unwrap().to_owned(), descriptor);
                }
                (["FDSTOREREMOVE=1", name], None) => {
                    self.stored.remove(name.strip_prefix("FDNAME=").unwrap());
                }
                (["BARRIER=1"], Some(_)) | (["READY=1"], None) => {}
                other => panic!("a message of the service: {other:?}"),
            }
            if lines.contains(&last) {
                return;
            }
        }
    }

    /// Returns the command that starts the service with the stored descriptors, as 3 and following.
    fn command(&self, test: &str) -> Command {
        let plain = Process::command(test, &["service"]);
        let mut command = Command::new("sh");
        // The number of the process is known once it exists.
        command
            .args(["-c", r#"LISTEN_PID=$$ exec "$0" "$@""#])
            .arg(plain.get_program())
            .args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("NOTIFY_SOCKET", &self.path).env("LISTEN_FDS", self.stored.len().to_string());
        let names: Vec<&str> = self.stored.keys().map(String::as_str).collect();
        command.env("LISTEN_FDNAMES", names.join(":"));
        // Behind the numbers that they get.
        let above = |descriptor| fcntl_dupfd_cloexec(descriptor, 100).unwrap();
        let descriptors: Vec<OwnedFd> = self.stored.values().map(above).collect();
        let pass = move || {
            for (descriptor, number) in descriptors.iter().zip(3..) {
                // SAFETY: async-signal-safe; the numbers are the child's, which executes a program next.
                if unsafe { libc::dup2(descriptor.as_raw_fd(), number) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure makes async-signal-safe calls, and allocates nothing unless one fails.
        unsafe { command.pre_exec(pass) };
        command
    }

    /// Starts the service, and returns it with its first line once it is ready.
    fn start(&mut self, test: &str) -> (Process, String) {
        let mut service = Process::spawn(self.command(test));
        self.handle_until("READY=1");
        let line = hear(&mut service);
        (service, line)
    }
}

/// Returns the next line of the service, without those of the program that it is in.
fn hear(service: &mut Process) -> String {
    loop {
        let line = service.hear().expect("the service ended");
        if !line.is_empty() && !line.starts_with("running") && !line.starts_with("test ") {
            return line;
        }
    }
}

fn ask(service: &mut Process, line: &str) -> String {
    service.tell(line);
    hear(service)
}

fn run_service() {
    // A line in one call: the supervisor writes to the same pipe.
    service::serve(BufReader::new(stdin()), LineWriter::new(stderr())).unwrap();
}

fn socket_path() -> PathBuf {
    Scratch::within("/tmp").0.with_extension("socket")
}

/// Writes items until there are `items`, and reads them all.
fn fill(service: &mut Process, from: u64, items: u64) {
    (from..items).for_each(|item| assert_eq!(ask(service, &format!("put {item:05} {item}")), "done"));
    (0..items).for_each(|item| assert_eq!(ask(service, &format!("get {item:05}")), item.to_string()));
}

#[test]
fn a_service_finds_pool_and_index_after_each_kill() {
    let _alone = crate::alone();
    if process::role().is_some() {
        return run_service();
    }
    let mut supervisor = Supervisor::new(&socket_path());
    let mut noise = Noise(7);
    let mut items = 0;
    for life in 0..6 {
        let (mut service, line) = supervisor.start(KILLS);
        assert_eq!(line, format!("{items} items, index kept: {}", life > 0), "life {life}");
        let more = items + 1 + noise.below(200);
        fill(&mut service, items, more);
        items = more;
        service.kill();
    }
    // The index is lost: the pool is recovered, and gets a new one.
    supervisor.stored.remove("index").unwrap();
    let (service, line) = supervisor.start(KILLS);
    assert_eq!(line, format!("{items} items, index kept: false"));
    service.end();
    let (mut service, line) = supervisor.start(KILLS);
    assert!(line.starts_with(&format!("{items} items")), "{line}");
    fill(&mut service, items, items + 10);
    service.end();
}

/// Starts the service, whose input and output are those of this process, and waits to be killed.
fn supervise(path: &Path) {
    let mut supervisor = Supervisor::new(path);
    let mut child = supervisor.command(DEATH).spawn().unwrap();
    supervisor.handle_until("READY=1");
    process::say(&format!("service {}", child.id()));
    child.wait().unwrap();
}

#[test]
fn a_service_continues_when_its_supervisor_dies() {
    let _alone = crate::alone();
    match process::role().as_deref() {
        Some([role]) if role == "service" => return run_service(),
        Some([role, path]) if role == "supervisor" => return supervise(Path::new(path)),
        _ => {}
    }
    let path = socket_path();
    let mut both = Process::start(DEATH, &["supervisor", path.to_str().unwrap()]);
    // In any order: both write to one pipe.
    let mut lines = [hear(&mut both), hear(&mut both)];
    lines.sort();
    assert_eq!(lines[0], "0 items, index kept: false");
    let service: i32 = lines[1].strip_prefix("service ").unwrap().parse().unwrap();
    fill(&mut both, 0, 100);
    both.kill_only();
    // It has no supervisor, and says so.
    fill(&mut both, 100, 150);
    assert!(ask(&mut both, "store").contains("refused"), "no process receives messages");
    let mut supervisor = Supervisor::new(&path);
    both.tell("store");
    supervisor.handle_until("BARRIER=1");
    assert_eq!(hear(&mut both), "stored");
    let pid = rustix::process::Pid::from_raw(service).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while both.hear().is_some() {}
    let (mut service, line) = supervisor.start(DEATH);
    assert_eq!(line, "150 items, index kept: true");
    fill(&mut service, 150, 160);
    service.end();
}
