//! Sessions that expire, in one tree by token and in another one by time.
//!
//! Two keys are never written in one atomic step. The order of the writes keeps the trees consistent: a session is
//! added by time before it is created, so a crash leaves at most an entry by time without a session. Sweeping
//! removes such entries like any other expired one.
//!
//! ```sh
//! cargo run --release --example sessions
//! ```

use std::path::PathBuf;

use bristlecone::{CasError, Pool, Result, Tree, TryInsertError};

/// Sessions: when each one expires, in seconds.
struct Sessions {
    by_token: Tree<&'static str, u64>,
    /// Expiry time and token; the value is unused.
    by_time: Tree<(u64, &'static str), u64>,
}

impl Sessions {
    fn open(pool: &Pool) -> Result<Self> {
        Ok(Self { by_token: pool.tree("sessions")?, by_time: pool.tree("sessions by time")? })
    }

    /// Creates a session; returns whether the token was free.
    fn begin(&self, token: &str, expires: u64) -> Result<bool> {
        self.by_time.insert((expires, token), 0)?;
        match self.by_token.try_insert(token, expires) {
            Ok(()) => Ok(true),
            Err(TryInsertError::Present(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Prolongs a session; returns whether it still existed.
    fn prolong(&self, token: &str, expires: u64) -> Result<bool> {
        self.by_time.insert((expires, token), 0)?;
        let mut held = self.by_token.get(token)?;
        while let Some(before) = held {
            match self.by_token.compare_and_swap(token, Some(before), Some(expires)) {
                Ok(()) => return Ok(true),
                // Another thread prolonged or swept it meanwhile.
                Err(CasError::Found(other)) => held = other,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Removes expired sessions; returns their number.
    fn sweep(&self, now: u64) -> Result<usize> {
        let mut swept = 0;
        for item in self.by_time.range(..(now, "")) {
            let ((expires, token), _) = item?;
            // A session that was prolonged has another time by now, and stays.
            match self.by_token.compare_and_swap(&token, Some(expires), None) {
                Ok(()) => swept += 1,
                Err(CasError::Found(_)) => {}
                Err(error) => return Err(error.into()),
            }
            self.by_time.remove((expires, &token))?;
        }
        Ok(swept)
    }
}

/// Runs the example.
pub fn main() -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-sessions-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    let sessions = Sessions::open(&pool)?;
    for (token, expires) in [("ada", 100), ("grace", 200), ("edsger", 300)] {
        assert!(sessions.begin(token, expires)?);
    }
    assert!(!sessions.begin("ada", 900)?, "the token is taken");
    assert!(sessions.prolong("ada", 400)?);
    println!("at 250 seconds, {} session has expired", sessions.sweep(250)?);

    // The process is killed: the next one finds all acknowledged writes.
    drop(sessions);
    pool.simulate_crash();
    let pool = Pool::options().open(&path)?;
    let sessions = Sessions::open(&pool)?;
    assert_eq!(sessions.by_token.get("grace")?, None);
    for item in &sessions.by_token {
        let (token, expires) = item?;
        println!("{token} until {expires}");
    }
    assert_eq!(sessions.by_token.len()?, 2);
    // The entry that `begin` left for a taken token is swept like an expired session, but is not counted.
    assert_eq!(sessions.sweep(1000)?, 2);
    assert!(sessions.by_token.is_empty()? && sessions.by_time.is_empty()?);

    drop(sessions);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| bristlecone::Error::io("removing the pool", error))
}
