//! Servers of tests.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;

/// Designs that a pool of maps can have.
pub const DESIGNS: [&str; 5] = ["sstree", "nbtree", "cclbtree", "lodgetree", "wotree"];

/// Returns the server's program, or says that there is none.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("BRISTLECONE_REDIS_SERVER").map(PathBuf::from);
    let found = named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        let dirs: Vec<_> = std::env::split_paths(&path).collect();
        let all = ["redis-server", "valkey-server"]
            .into_iter()
            .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
        all.into_iter().find(|program| program.is_file())
    });
    if found.is_none() {
        eprintln!("skipped: neither redis-server nor valkey-server is on PATH");
    }
    found
}

/// Returns the module that was built with the tests.
pub fn module() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let file = test.with_file_name("libbristlecone_redis.so");
    assert!(file.is_file(), "{} is not built", file.display());
    file
}

static DIRS: AtomicU32 = AtomicU32::new(0);

/// Returns a port that nothing listens on; ports of a cluster leave room for the bus, 10,000 above.
fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port < 50_000 {
            return port;
        }
    }
}

/// A server with a directory of its own. It is killed, and the directory removed, when it is dropped.
pub struct Server {
    program: PathBuf,
    pub dir: PathBuf,
    pub port: u16,
    /// The server's options, one word each.
    pub arguments: Vec<String>,
    module: String,
    child: Option<Child>,
    /// A file of the server's configuration, which loads the module.
    pub config: Option<PathBuf>,
    /// The user that the server runs as, if another than the tests' own.
    pub user: Option<u32>,
}

impl Server {
    /// Starts a server with these options, one word each; or says that there is none.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_with("max-bytes 256mb", arguments)
    }

    /// Starts a server whose module has these arguments besides the pool.
    pub fn start_with(of_module: &str, arguments: &[&str]) -> Option<Self> {
        let mut server = Self::prepare(of_module, arguments)?;
        server.run();
        Some(server)
    }

    /// Makes a server's directory and starts nothing.
    pub fn prepare(of_module: &str, arguments: &[&str]) -> Option<Self> {
        let program = program()?;
        let number = DIRS.fetch_add(1, Ordering::Relaxed);
        let dir =
            Path::new("/dev/shm").join(format!("bristlecone-redis-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Some(Self {
            program,
            dir,
            port: free_port(),
            arguments,
            module: of_module.to_owned(),
            child: None,
            config: None,
            user: None,
        })
    }

    /// Returns the pool's path.
    pub fn pool(&self) -> PathBuf {
        self.dir.join("node.pool")
    }

    /// Returns the server's version.
    pub fn version(&self) -> String {
        let said = Command::new(&self.program).arg("--version").output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let word = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
        word.expect("a version").to_owned()
    }

    /// Starts the server without the module, and waits until it serves.
    pub fn run_without_module(&mut self) {
        self.spawn(false);
        self.await_service();
    }

    fn spawn(&mut self, with_module: bool) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let mut command = Command::new(&self.program);
        let with_module = with_module && self.config.is_none();
        command.args(&self.config);
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&self.dir);
        command.args([
            "--enable-debug-command",
            "yes",
            "--enable-module-command",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        command.args(&self.arguments).stdout(log).stderr(Stdio::null());
        if with_module {
            command.arg("--loadmodule").arg(module()).arg("pool").arg(self.pool());
            command.args(self.module.split_whitespace());
        }
        if let Some(user) = self.user {
            command.uid(user);
        }
        self.child = Some(command.spawn().unwrap());
    }

    /// Starts the server, and waits until it serves.
    pub fn run(&mut self) {
        self.spawn(true);
        self.await_service();
    }

    fn await_service(&mut self) {
        let since = Instant::now();
        loop {
            let answers =
                |mut client: Client| client.send(&[b"PING"]).is_ok_and(|reply| reply.text() == "PONG");
            if Client::connect(self.port).is_ok_and(answers) {
                return;
            }
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && since.elapsed() < Duration::from_secs(60),
                "{ended:?}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the server, which must refuse to start, and returns its log.
    pub fn run_refused(&mut self) -> String {
        self.spawn(true);
        let since = Instant::now();
        while self.child.as_mut().unwrap().try_wait().unwrap().is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "it starts\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.child.take().unwrap().wait().unwrap().code(), Some(1), "{}", self.log());
        self.log()
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Connects.
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("the server listens")
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends the server with a command that has no reply, and waits until it is gone.
    pub fn shut_down(&mut self, command: &str) {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let replied = self.client().send(&words);
        assert!(replied.is_err(), "{replied:?}");
        assert!(self.child.take().unwrap().wait().unwrap().success(), "{}", self.log());
    }

    /// Kills the server and starts it again.
    pub fn crash(&mut self) {
        self.kill();
        self.run();
    }

    /// Waits until something holds.
    pub fn wait(&self, what: &str, mut holds: impl FnMut(&mut Client) -> bool) {
        let mut client = self.client();
        let since = Instant::now();
        while !holds(&mut client) {
            assert!(since.elapsed() < Duration::from_secs(60), "{what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if !std::thread::panicking() {
            _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
