//! `bristlecone-lab redis`: YCSB's workloads against a Redis server with the module of `bindings/redis`.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::{interrupt, size};
use clap::Args;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Measure a Redis server whose ordered maps are trees, or its own hashes, with YCSB
///
/// Starts a server on loopback with a pool of its own, loads records into one map, and runs a workload from 50
/// connections of one thread, with 1 and with 16 commands in a pipeline. Needs a redis-server or valkey-server
/// on PATH, or named by BRISTLECONE_REDIS_SERVER, and the module with its driver, built by
/// `cargo build --release --lib --examples` in bindings/redis, or located in the folder named by
/// BRISTLECONE_REDIS_MODULES.
#[derive(Args, Debug)]
pub struct Redis {
    /// The design of the maps, or hash: hashes of the server without a file.
    #[arg(long, value_name = "DESIGN", default_value = "wotree")]
    design: String,
    /// Number of records to load.
    #[arg(long, value_name = "N", default_value = "100k", value_parser = size::parse_count)]
    records: u64,
    /// Number of operations of each pipeline.
    #[arg(long, value_name = "N", default_value = "100k", value_parser = size::parse_count)]
    operations: u64,
    /// YCSB's workload: a, b, c, d or f.
    #[arg(long, value_name = "W", default_value = "a", value_parser = ["a", "b", "c", "d", "f"])]
    workload: String,
    /// Size of a value in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    value: u32,
}

/// The name of the server's own hashes among designs.
pub const HASH: &str = "hash";
/// The name of the module's file.
const MODULE: &str = "libbristlecone_redis.so";
/// Folders of its builds, below the repository.
const BUILT: [&str; 2] = ["bindings/redis/target/release", "target/bindings/release"];
const CONNECTIONS: u64 = 50;
const PIPELINES: [u64; 2] = [1, 16];
/// Maximum time for a server to start.
const START: Duration = Duration::from_secs(30);

/// Returns whether maps support a design.
pub fn has(design: &str) -> bool {
    design == HASH || design.parse::<bristlecone::Design>().is_ok()
}

/// A folder, which is removed with its contents when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server, which is killed when this is dropped. It does not outlive this process.
struct Server {
    process: Child,
    folder: Folder,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Redis {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let report = self.measure()?;
        if output.json() {
            return output.value(&report);
        }
        for pipeline in PIPELINES {
            let kops = report["pipelines"][pipeline.to_string()]["kops"].as_f64().unwrap_or_default();
            output.line(format_args!(
                "{}, YCSB {}, {pipeline} in a pipeline: {kops:.1} K operations a second",
                self.design,
                self.workload.to_uppercase()
            ))?;
        }
        Ok(())
    }

    /// Measures, and returns the output of `--json`.
    pub fn measure(&self) -> Outcome<Value> {
        if !has(&self.design) {
            let what = format!("--design {}: maps are of a design of pools, or hash", self.design);
            return Err(Failure::usage(what));
        }
        let (program, built) = (program()?, built()?);
        let server = self.start(&program, &built)?;
        self.drive(&built, &server, "load", 0, 1)?;
        let mut pipelines = serde_json::Map::new();
        for pipeline in PIPELINES {
            let rate = self.drive(&built, &server, &self.workload, self.operations, pipeline)?;
            pipelines.insert(pipeline.to_string(), json!({ "kops": rate / 1000.0 }));
        }
        Ok(json!({
            "design": self.design,
            "workload": self.workload,
            "records": self.records,
            "operations": self.operations,
            "value_bytes": self.value,
            "connections": CONNECTIONS,
            "server": version(&program),
            "pipelines": pipelines,
        }))
    }

    fn start(&self, program: &Path, built: &Path) -> Outcome<Server> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = Folder(base.join(format!("bristlecone-lab-redis-{}", std::process::id())));
        let said = |error: std::io::Error| Failure::io(base.display(), &error);
        std::fs::create_dir_all(&folder.0).map_err(said)?;
        let log = File::create(folder.0.join("log")).map_err(said)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(&folder.0);
        if self.design != HASH {
            command.arg("--loadmodule").arg(built.join(MODULE)).arg("pool").arg(folder.0.join("maps.pool"));
            command.args(["design", &self.design]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(said)?).stderr(log);
        // SAFETY: the child makes one system call, and touches nothing of its parent.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let process = command.spawn().map_err(|error| Failure::io(program.display(), &error))?;
        let mut server = Server { process, folder, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            interrupt::check("nothing was measured")?;
            let ended = matches!(server.process.try_wait(), Ok(Some(_)));
            if ended || began.elapsed() > START {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("the server does not start: {}", server.last_words()),
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Runs a workload; returns operations per second.
    fn drive(
        &self,
        built: &Path,
        server: &Server,
        workload: &str,
        operations: u64,
        pipeline: u64,
    ) -> Outcome<f64> {
        let driver = built.join("examples/ycsb");
        let kind = if self.design == HASH { "hash" } else { "om" };
        let numbers = [self.records, operations, CONNECTIONS, pipeline, u64::from(self.value)];
        let ran = Command::new(&driver)
            .args([&server.port.to_string(), kind, workload])
            .args(numbers.map(|number| number.to_string()))
            .output()
            .map_err(|error| Failure::io(driver.display(), &error))?;
        let said = String::from_utf8_lossy(&ran.stdout);
        said.trim().parse().ok().filter(|_| ran.status.success()).ok_or_else(|| {
            let why = String::from_utf8_lossy(&ran.stderr);
            let why = why.lines().last().unwrap_or("it said nothing").to_owned();
            Failure::new(Exit::Failed, format!("the driver failed: {why}"))
        })
    }
}

impl Server {
    /// Returns the last line of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

/// Returns an unused port.
fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| Failure::io("a port on loopback", &error))
}

/// Returns the server's program.
fn program() -> Outcome<PathBuf> {
    if let Some(named) = std::env::var_os("BRISTLECONE_REDIS_SERVER") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| ["redis-server", "valkey-server"].map(|name| folder.join(name)))
        .find(|program| program.is_file());
    let missing = "neither redis-server nor valkey-server is on PATH: install one, or name it by BRISTLECONE_REDIS_SERVER";
    found.ok_or_else(|| Failure::new(Exit::Absent, missing))
}

/// Returns the folder with the module and its driver.
fn built() -> Outcome<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = match std::env::var_os("BRISTLECONE_REDIS_MODULES") {
        Some(named) => vec![PathBuf::from(named)],
        None => BUILT.map(|folder| repository.join(folder)).to_vec(),
    };
    let whole = |folder: &PathBuf| folder.join(MODULE).is_file() && folder.join("examples/ycsb").is_file();
    let missing = "the module or its driver is not built: `cargo build --release --lib --examples` in bindings/redis builds both";
    folders.into_iter().find(whole).ok_or_else(|| Failure::new(Exit::Absent, missing))
}

/// Returns the version that the server prints.
fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?.stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="))?.to_owned();
    let name = said.split_whitespace().next().unwrap_or_default().to_owned();
    Some(format!("{name} {version}"))
}
