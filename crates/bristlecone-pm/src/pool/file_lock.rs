//! The lock of a pool's file: one writer, or any number of readers.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::process::{Pid, test_kill_process};

use super::Access;
use crate::{Error, Result, failpoint};

/// Buffer size for the kernel's table of locks, so that few reads suffice.
const LOCKS_BYTES: usize = 64 << 10;
/// Maximum wait for the lock of a dead process.
const LEFT_BEHIND: Duration = Duration::from_secs(5);
/// Maximum wait for a lock that no process holds.
const JUST_GIVEN_BACK: Duration = Duration::from_millis(200);
/// Number of attempts to read a table that changes meanwhile.
const LOOKS: usize = 3;

/// Locks the pool for this handle alone, or shared with other readers.
///
/// The lock of a killed process may outlive it for a moment, even after its parent has waited for it. While
/// anything reads its memory, such as `ps`, the mapped file stays open. This function waits for such a lock.
pub(crate) fn lock(file: &File, access: Access) -> Result<()> {
    let operation = match access {
        Access::Write => FlockOperation::NonBlockingLockExclusive,
        Access::Read | Access::Follow => FlockOperation::NonBlockingLockShared,
    };
    let begun = Instant::now();
    loop {
        match failpoint::call("flock", || flock(file, operation)) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(Error::io("locking a pool", error)),
        }
        let pid = holder(file);
        let patience = match pid {
            Some(pid) if is_gone(pid) => LEFT_BEHIND,
            Some(_) => Duration::ZERO,
            // Released meanwhile; or there is no table of locks.
            None => JUST_GIVEN_BACK,
        };
        if begun.elapsed() >= patience {
            return Err(Error::InUse { pid });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether the process no longer exists.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Returns the process that holds the lock, from the kernel's table of locks.
fn holder(file: &File) -> Option<u32> {
    let of = file.metadata().ok()?;
    // If the table needs several reads, the kernel continues by line number, and other processes release locks
    // meanwhile.
    (0..LOOKS).find_map(|_| {
        let mut table = String::with_capacity(LOCKS_BYTES);
        File::open("/proc/locks").and_then(|mut locks| locks.read_to_string(&mut table)).ok()?;
        holder_among(&table, of.dev(), of.ino())
    })
}

fn holder_among(table: &str, device: u64, inode: u64) -> Option<u32> {
    let device = [major(device), minor(device)].map(Some);
    let holders = table.lines().filter_map(|line| {
        // Processes that wait have an arrow before the kind of lock.
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid: u32 = words.next()?.parse().ok()?;
        let mut place = words.next()?.splitn(3, ':');
        let device = [place.next()?, place.next()?].map(|part| u32::from_str_radix(part, 16).ok());
        let theirs: u64 = place.next()?.parse().ok()?;
        (kind == "FLOCK" && theirs == inode).then_some((device, pid))
    });
    // On a stacked file system, files and locks may name different devices. Then the inode decides, if only one
    // lock has it.
    let holders: Vec<_> = holders.collect();
    let here = holders.iter().find(|(theirs, _)| *theirs == device);
    here.or(holders.first().filter(|_| holders.len() == 1)).map(|(_, pid)| *pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let table = "1: FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 12 00:1b:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 13 00:1b:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 00:1b:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 00:1b:78 0 EOF\n\
                     5: FLOCK";
        let in_memory = rustix::fs::makedev(0, 0x1b);
        assert_eq!(holder_among(table, in_memory, 77), Some(13));
        assert_eq!(holder_among(table, rustix::fs::makedev(0xfe, 0), 77), Some(11));
        assert_eq!(holder_among(table, rustix::fs::makedev(9, 9), 78), Some(15), "the only one");
        assert_eq!(holder_among(table, rustix::fs::makedev(9, 9), 77), None, "either of two");
        assert_eq!(holder_among(table, in_memory, 79), None);
    }
}
