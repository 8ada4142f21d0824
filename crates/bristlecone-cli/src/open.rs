//! Opening pools: for reading or writing, with optional waiting, and error messages.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bristlecone::{Domain, Error, Issue, KeepIndex, Pool, PoolOptions};
use bristlecone_cli::arguments::{DomainArg, FolderArg, JournalArgs};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::size;
use clap::Args;
use rustix::io::Errno;

/// The pool, and how long to wait for it.
#[derive(Args, Clone, Debug)]
pub struct PoolPath {
    /// The pool file.
    #[arg(value_name = "POOL")]
    pub path: PathBuf,
    /// Wait up to SECONDS for a locked pool [default without value: 10]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    #[arg(value_parser = seconds)]
    pub wait: Option<Duration>,
}

/// The pool, its durability domain, and its journal.
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    #[command(flatten)]
    pub pool: PoolPath,
    #[command(flatten)]
    pub domain: DomainArg,
    #[command(flatten)]
    pub journal: JournalArgs,
}

/// The pool, for commands that only read. The file is not changed, even after a crash.
#[derive(Args, Clone, Debug)]
pub struct ReadArgs {
    #[command(flatten)]
    pub pool: PoolPath,
    #[command(flatten)]
    pub folder: FolderArg,
    /// Ignored; accepted for compatibility.
    #[arg(long, hide = true)]
    pub read_only: bool,
}

impl PoolArgs {
    /// Opens the pool for writing, and reports damage on standard error.
    pub fn open(&self) -> Outcome<Pool> {
        self.open_with(|options| options)
    }

    /// Opens the pool for writing, with options besides those given.
    pub fn open_with(&self, more: impl FnOnce(PoolOptions) -> PoolOptions) -> Outcome<Pool> {
        self.pool.open(&more(self.options())).map(saying)
    }

    /// Returns the options that were given.
    pub fn options(&self) -> PoolOptions {
        self.journal.apply(with_domain(self.domain.domain))
    }
}

impl ReadArgs {
    /// Opens the pool for reading while no process writes to it, and reports damage on standard error.
    pub fn open(&self) -> Outcome<Pool> {
        self.pool.open(&self.options()).map(saying)
    }

    /// Opens the pool for reading, or follows the process that writes to it; reports damage on standard error.
    pub fn open_or_follow(&self) -> Outcome<Pool> {
        self.pool.open_or_follow(&self.options()).map(saying)
    }

    /// Opens the pool for reading from its medium only, ignoring an index saved in memory.
    pub fn open_from_medium(&self) -> Outcome<Pool> {
        self.pool.open(&self.medium_options())
    }

    /// Does the same, or follows the process that writes to the pool.
    pub fn open_from_medium_or_follow(&self) -> Outcome<Pool> {
        self.pool.open_or_follow(&self.medium_options())
    }

    fn options(&self) -> PoolOptions {
        self.folder.apply(Pool::options().read_only(true))
    }

    fn medium_options(&self) -> PoolOptions {
        self.options().keep_index(KeepIndex::Never)
    }
}

/// Reports damage of a pool on standard error.
fn saying(pool: Pool) -> Pool {
    for Issue { location, what, .. } in pool.info().issues {
        eprintln!("bristlecone: {what} at {location}");
    }
    pool
}

/// Returns options with the domain, if one was given.
pub fn with_domain(domain: Option<Domain>) -> PoolOptions {
    domain.map_or_else(Pool::options, |domain| Pool::options().domain(domain))
}

impl PoolPath {
    /// Opens or creates the pool with the options; waits for it if requested.
    pub fn open(&self, options: &PoolOptions) -> Outcome<Pool> {
        self.wait_for(|| options.open(&self.path).map_err(Refusal::from))
    }

    /// Opens the pool with the options, which must be for reading, or follows the process that writes to it. If neither
    /// is possible, waits if requested.
    pub fn open_or_follow(&self, options: &PoolOptions) -> Outcome<Pool> {
        self.wait_for(|| {
            let opened = self.read_or_follow(options);
            // The process may have closed the pool between the two attempts.
            let may_be_closed = matches!(&opened, Err(Refusal { why_not_followed: Some(_), .. }));
            if may_be_closed { self.read_or_follow(options) } else { opened }
        })
    }

    fn wait_for(&self, open: impl Fn() -> Result<Pool, Refusal>) -> Outcome<Pool> {
        let begun = Instant::now();
        let mut told = false;
        loop {
            let (holder, why_not_followed) = match open() {
                Ok(pool) => return Ok(pool),
                Err(Refusal { error: Error::InUse { pid }, why_not_followed }) => (pid, why_not_followed),
                Err(Refusal { error, .. }) => return Err(explain(&self.path, error)),
            };
            let waited = begun.elapsed();
            if self.wait.is_none_or(|most| waited >= most) {
                return Err(self.in_use(holder, why_not_followed.as_deref()));
            }
            if !told && waited > TOLD_AFTER {
                eprintln!("bristlecone: waiting for {}, {}", self.path.display(), held_by(holder));
                told = true;
            }
            std::thread::sleep(LOOK_EVERY);
            interrupt::check("the pool was not opened")?;
        }
    }

    /// Opens the pool with the options, or returns the reason why it cannot be followed.
    fn read_or_follow(&self, options: &PoolOptions) -> Result<Pool, Refusal> {
        let in_use = match options.open(&self.path) {
            Err(error @ Error::InUse { .. }) => error,
            opened => return opened.map_err(Refusal::from),
        };
        match Pool::options().follow(&self.path) {
            Err(Error::NoWriter { why, .. }) => Err(Refusal { error: in_use, why_not_followed: Some(why) }),
            followed => followed.map_err(Refusal::from),
        }
    }

    fn in_use(&self, holder: Option<u32>, why_not_followed: Option<&str>) -> Failure {
        let path = self.path.display();
        let why =
            why_not_followed.map(|why| format!(", and cannot be followed, since {why}")).unwrap_or_default();
        let held = held_by(holder) + &why;
        let said = match self.wait {
            None => format!("{path} is {held}: close it there first, or wait for it with --wait"),
            Some(most) => format!("{path} is still {held} after {} s of waiting", most.as_secs_f64()),
        };
        Failure::new(Exit::InUse, said)
    }
}

/// The reason why a pool was not opened.
struct Refusal {
    error: Error,
    /// Set if the pool is in use and was to be followed.
    why_not_followed: Option<String>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, why_not_followed: None }
    }
}

/// A longer wait is reported.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn held_by(holder: Option<u32>) -> String {
    let Some(pid) = holder else { return "in use by another process".to_owned() };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("in use by process {pid}"),
        name => format!("in use by process {pid} ({name})"),
    }
}

/// Parses a time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{text:?} is not a number of seconds, such as 10 or 0.5"))
}

/// Returns the failure, with the path if the error itself does not name it.
pub fn explain(path: &Path, error: Error) -> Failure {
    let errno = match &error {
        Error::Io { source, .. } => source.raw_os_error().map(Errno::from_raw_os_error),
        Error::NotFound { .. } => Some(Errno::NOENT),
        _ => None,
    };
    let shown = path.display();
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if let Error::MaximumFixed { possible, .. } = error {
        let possible = size::show(possible);
        let copy = "use `bristlecone copy`";
        return Failure::usage(format!(
            "the maximum of {shown} can be raised in place to {possible} only: {copy}"
        ));
    }
    let said = match errno {
        _ if path.is_dir() => (Exit::Usage, format!("{shown} is a folder: name a file in it")),
        Some(Errno::NOENT) if parent.symlink_metadata().is_err() => {
            (Exit::Absent, format!("no folder {}: create it first", parent.display()))
        }
        Some(Errno::NOENT) if path.is_symlink() => {
            (Exit::Absent, format!("{shown} is a link to a file that is not there"))
        }
        Some(Errno::NOTDIR) => (Exit::Usage, format!("{shown}: a part of this path is a file, not a folder")),
        Some(Errno::NAMETOOLONG) => (
            Exit::Usage,
            format!(
                "the path of {} bytes is too long: a name may have 255 bytes, a path 4095",
                path.as_os_str().len()
            ),
        ),
        Some(Errno::LOOP) => (Exit::Usage, format!("{shown} is a link that leads to itself")),
        Some(Errno::ACCESS | Errno::PERM) => {
            (Exit::Failed, format!("{shown}: Permission denied: this user may not open or create it"))
        }
        _ => return error.into(),
    };
    Failure::new(said.0, said.1)
}
