//! Processes that share memory: the only unsafe lines of the command.

use std::io::Error;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// A value that several processes may share, and for which zeros are valid.
///
/// # Safety
///
/// Every field must be an `AtomicU64`, or an array or a struct of these.
pub unsafe trait Shareable: Sync + 'static {}

/// Maps zeros that the process shares with its forked children, as long as one of them lives.
pub fn share<T: Shareable>() -> Result<&'static T, Error> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<T>(), prot, MapFlags::SHARED) }?;
    // SAFETY: never unmapped, aligned to a page, and zeros are a value; others change it through atomics only.
    Ok(unsafe { &*page.cast() })
}

/// Zeroes all of it.
pub fn clear<T: Shareable>(shared: &'static T) {
    let words = std::ptr::from_ref(shared).cast::<AtomicU64>();
    // SAFETY: it consists of such words only.
    let words = unsafe { std::slice::from_raw_parts(words, size_of::<T>() / size_of::<AtomicU64>()) };
    words.iter().for_each(|word| word.store(0, Relaxed));
}

/// A child that is killed when its parent exits.
pub struct Child(Pid);

impl Child {
    /// Forks a child that runs `work` and exits. The caller must have one thread.
    pub fn fork(work: impl FnOnce()) -> Result<Self, Error> {
        // SAFETY: there is no other thread that could hold a lock which the child needs.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last_os_error()),
            0 => {
                // If this fails, the child ends by itself.
                let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                work();
                // SAFETY: ends the process; what the parent has buffered is not written twice.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self(Pid::from_raw(pid).expect("a child has a number"))),
        }
    }

    /// Returns how the child ended, or `None` if it is running.
    pub fn ended(&self) -> Result<Option<WaitStatus>, Error> {
        Ok(waitpid(Some(self.0), WaitOptions::NOHANG)?.map(|(_, status)| status))
    }

    /// Returns the state of each thread of the child, as reported by the system: a letter, and its
    /// location in the kernel.
    pub fn threads(&self) -> Vec<(char, String)> {
        let pid = self.0.as_raw_nonzero();
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let thread = |task: std::fs::DirEntry| {
            let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            // The name, which may contain any characters, ends with the last bracket.
            let state = read("stat").rsplit(") ").next().and_then(|rest| rest.chars().next());
            (state.unwrap_or('?'), read("wchan"))
        };
        tasks.flatten().map(thread).collect()
    }

    /// Kills the child and returns how it ended; it may have ended by itself before.
    pub fn kill(&self) -> Result<WaitStatus, Error> {
        kill_process(self.0, Signal::KILL)?;
        let ended = waitpid(Some(self.0), WaitOptions::empty())?;
        Ok(ended.expect("it was waited for").1)
    }
}
