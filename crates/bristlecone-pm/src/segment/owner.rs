//! Detection of living processes: locks of bytes of the segment's file. The kernel releases them with the file's last
//! descriptor, in any PID namespace.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A byte of the file that a process locks for its lifetime.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lock {
    /// The writer's.
    Writer,
    /// That of a follower, by its row.
    Row(usize),
}

impl Lock {
    /// Returns a request for the lock.
    fn request(self, kind: libc::c_int) -> libc::flock {
        // SAFETY: all zero is a valid `flock`.
        let mut request: libc::flock = unsafe { std::mem::zeroed() };
        request.l_type = kind as libc::c_short;
        request.l_whence = libc::SEEK_SET as libc::c_short;
        request.l_start = match self {
            Self::Writer => 0,
            Self::Row(row) => 1 + row as libc::off_t,
        };
        request.l_len = 1;
        request
    }
}

/// Takes a lock; returns whether it succeeded.
pub(super) fn take(file: &File, lock: Lock) -> bool {
    call(file, libc::F_OFD_SETLK, &mut lock.request(libc::F_WRLCK))
}

/// Releases a lock.
pub(super) fn give_back(file: &File, lock: Lock) {
    call(file, libc::F_OFD_SETLK, &mut lock.request(libc::F_UNLCK));
}

/// Returns whether another descriptor has a lock; true if the query fails.
pub(super) fn is_held(file: &File, lock: Lock) -> bool {
    let mut request = lock.request(libc::F_WRLCK);
    !call(file, libc::F_OFD_GETLK, &mut request) || request.l_type != libc::F_UNLCK as libc::c_short
}

fn call(file: &File, command: libc::c_int, request: &mut libc::flock) -> bool {
    // SAFETY: the descriptor is open, and the request is a live value.
    unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(request)) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_that_of_one_descriptor() {
        let path = std::env::temp_dir().join(format!("bristlecone-owner-{}", std::process::id()));
        let open =
            || File::options().create(true).truncate(false).read(true).write(true).open(&path).unwrap();
        let (own, other) = (open(), open());
        assert!(!is_held(&other, Lock::Writer));
        assert!(take(&own, Lock::Writer) && is_held(&other, Lock::Writer) && !is_held(&own, Lock::Writer));
        assert!(!is_held(&other, Lock::Row(0)) && take(&other, Lock::Row(0)) && !take(&own, Lock::Row(0)));
        give_back(&own, Lock::Writer);
        assert!(!is_held(&other, Lock::Writer));
        drop(other);
        assert!(take(&own, Lock::Row(0)));
        std::fs::remove_file(&path).unwrap();
    }
}
