//! Children, and how processes wait for each other.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seconds after which a hanging child is ended.
const PATIENCE: u32 = 30;

/// A running child.
pub struct Child(i32);

impl Child {
    /// Creates a child with `make`, which runs `work` and exits.
    pub fn by(make: impl FnOnce() -> i64, work: impl FnOnce()) -> Self {
        let child = make();
        if child == 0 {
            // SAFETY: always.
            unsafe { libc::alarm(PATIENCE) };
            let done = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: always; nothing of the parent's is run on the way out.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        assert!(child > 0, "no child");
        Self(child as i32)
    }

    pub fn forked(work: impl FnOnce()) -> Self {
        // SAFETY: what children do here is what is tested.
        Self::by(|| i64::from(unsafe { libc::fork() }), work)
    }

    /// Waits for the child, which must exit successfully.
    pub fn finish(self) {
        let mut status = 0;
        // SAFETY: the status is a live value.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!((ended, status), (self.0, 0), "the child failed, or hung");
    }
}

pub fn child(work: impl FnOnce()) {
    Child::forked(work).finish();
}

/// Signals progress from one process to another.
pub struct Pipe([i32; 2]);

impl Pipe {
    pub fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: room for both ends.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        Self(ends)
    }

    pub fn ring(&self) {
        // SAFETY: one live byte.
        assert_eq!(unsafe { libc::write(self.0[1], b"!".as_ptr().cast(), 1) }, 1);
    }

    /// Waits for the signal of another process; fails if all possible senders have ended.
    pub fn wait(&mut self) {
        // SAFETY: this process's own end, which it does not need.
        unsafe { libc::close(std::mem::replace(&mut self.0[1], -1)) };
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        assert_eq!(unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) }, 1, "the other one failed");
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in self.0.into_iter().filter(|&end| end >= 0) {
            // SAFETY: this value's own.
            unsafe { libc::close(end) };
        }
    }
}
