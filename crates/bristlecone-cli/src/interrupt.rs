//! Ctrl-C and SIGTERM: recorded, and honoured at the next safe point. A second signal ends the
//! process immediately.

use std::io::{BufReader, Error, Read, Stdin};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bristlecone::JournalFiles;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::failure::{Exit, Failure, Outcome};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Terminal settings to restore on exit, while no command is running.
static AT_PROMPT: Mutex<Option<Termios>> = Mutex::new(None);

/// The pool to remove when a second signal arrives.
static REMOVED_AT_EXIT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Installs the handler. Without it the signal would end the process immediately, which loses no
/// acknowledged data either; so errors are ignored.
pub fn listen() {
    // Opening a pool registers the process for this, which takes 10 to 30 ms in one with more than one thread, and nothing
    // before the handler's thread exists. Kernels without it answer with an error.
    let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
    let _ = ctrlc::set_handler(|| {
        let terminal = AT_PROMPT.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(terminal) = &terminal {
            // The line editor has changed the settings.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, terminal);
        }
        if ASKED.swap(true, Ordering::Relaxed) || terminal.is_some() {
            if let Some(path) = removed_at_exit().take() {
                remove_pool(&path);
            }
            std::process::exit(Exit::Interrupted as i32);
        }
    });
}

/// Sets or clears the pool to remove if the user forces an immediate exit; returns whether one was
/// set before.
pub fn remove_at_exit(path: Option<&Path>) -> bool {
    std::mem::replace(&mut *removed_at_exit(), path.map(Path::to_owned)).is_some()
}

/// Removes a pool and the journal beside it, if they exist.
pub fn remove_pool(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(JournalFiles::folder_of(path));
}

fn removed_at_exit() -> MutexGuard<'static, Option<PathBuf>> {
    REMOVED_AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the user has asked to stop.
#[inline]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Clears the request to stop before the next command.
pub fn forget() {
    ASKED.store(false, Ordering::Relaxed);
}

/// Calls `wait`, which waits at a prompt on the terminal. A signal meanwhile ends the process
/// immediately.
pub fn at_prompt<T>(wait: impl FnOnce() -> T) -> T {
    let set = |terminal| *AT_PROMPT.lock().unwrap_or_else(PoisonError::into_inner) = terminal;
    set(tcgetattr(std::io::stdin()).ok());
    let waited = wait();
    set(None);
    waited
}

/// Fails if the user has asked to stop.
pub fn check(what_stands: &str) -> Outcome {
    if asked() { Err(Failure::interrupted(what_stands)) } else { Ok(()) }
}

/// Fails if the user has asked to stop and the operation failed.
pub fn check_failed<T, E>(done: &Result<T, E>, what_stands: impl std::fmt::Display) -> Outcome {
    if asked() && done.is_err() { Err(Failure::interrupted(what_stands)) } else { Ok(()) }
}

/// Standard input that stops waiting when the user asks to stop.
pub struct Input(Stdin);

/// Returns standard input, buffered.
pub fn stdin() -> BufReader<Input> {
    BufReader::with_capacity(1 << 16, Input(std::io::stdin()))
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if asked() {
                return Err(Error::other("interrupted"));
            }
            let mut ready = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            match poll(&mut ready, Some(&pause)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(self.0.as_fd(), &mut *buffer)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
