//! Sessions that expire: a tree whose entries have a time, swept a few at a time.
//!
//! A request that finds no session is refused, whether the session has expired, was swept or never existed. Sweeping frees
//! space only, so a program does it when it has time, and a crash in between loses nothing.
//!
//! ```sh
//! cargo run --release --example sessions
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use bristlecone::{Expiring, ExpiringTree, Pool, Result, TryInsertError};

/// How long a session lives without a request.
const IDLE: Duration = Duration::from_secs(100);
/// Number of entries that one sweep reads.
const SWEEP: u64 = 2;

/// Sessions: the user of each token.
struct Sessions(ExpiringTree<&'static str, &'static str>);

impl Sessions {
    /// Creates the sessions. The tree stores how long they live.
    fn create(pool: &Pool) -> Result<()> {
        pool.tree_options("sessions").expire_after(IDLE).create::<&str, Expiring<&str>>().map(drop)
    }

    /// Opens the sessions. A program uses the clock of the system: this one sets its own, in seconds.
    fn open(pool: &Pool, clock: &Arc<AtomicU64>) -> Result<Self> {
        let clock = Arc::clone(clock);
        let tree = pool.tree::<&str, Expiring<&str>>("sessions")?.expiring();
        Ok(Self(tree.with_clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Relaxed)))))
    }

    /// Creates a session; returns whether the token was free. The token of an expired session is.
    fn begin(&self, token: &str, user: &str) -> Result<bool> {
        match self.0.try_insert(token, user, None) {
            Ok(()) => Ok(true),
            Err(TryInsertError::Present(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the user of a session, and prolongs it.
    fn request(&self, token: &str) -> Result<Option<String>> {
        self.0.set_expiry(token, None)?;
        self.0.get(token)
    }

    /// Removes expired sessions; returns their number.
    fn sweep(&self) -> Result<u64> {
        let mut swept = 0;
        loop {
            let pass = self.0.remove_expired(SWEEP)?;
            swept += pass.removed;
            if pass.is_complete {
                return Ok(swept);
            }
        }
    }
}

/// Runs the example.
pub fn main() -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-sessions-{}.pool", std::process::id()));
    let clock = Arc::new(AtomicU64::new(1000));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    Sessions::create(&pool)?;
    let sessions = Sessions::open(&pool, &clock)?;
    for (token, user) in [("token 1", "ada"), ("token 2", "grace"), ("token 3", "edsger")] {
        assert!(sessions.begin(token, user)?);
    }
    assert!(!sessions.begin("token 1", "mallory")?, "the token is taken");
    clock.store(1090, Relaxed);
    assert_eq!(sessions.request("token 1")?.as_deref(), Some("ada"));

    // The process is killed: the next one finds all acknowledged writes, and their times.
    drop(sessions);
    pool.simulate_crash();
    clock.store(1120, Relaxed);
    let pool = Pool::options().open(&path)?;
    let sessions = Sessions::open(&pool, &clock)?;
    assert_eq!((sessions.request("token 1")?.as_deref(), sessions.request("token 2")?), (Some("ada"), None));
    assert!(sessions.begin("token 2", "barbara")?, "the token of an expired session is free");
    for item in &sessions.0 {
        let (token, user) = item?;
        println!("{token}: {user}");
    }
    println!("{} sessions were swept", sessions.sweep()?);
    assert_eq!((sessions.0.len()?, sessions.0.count(..)?), (2, 2));

    drop(sessions);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| bristlecone::Error::io("removing the pool", error))
}
