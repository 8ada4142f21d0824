//! The pages of a region: huge pages where the system provides them.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::{Region, full_or};
use crate::sync::pause::Pause;
use crate::sync::raced::Raced;
use crate::{PAGE_BYTES, Result, failpoint};

/// Mappings begin and grow at multiples of a huge page.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;
/// Linux 6.1: makes the range huge pages immediately, even where shared memory is configured never
/// to use them.
const MADV_COLLAPSE: i32 = 25;
/// A collapse waits until the kernel has run on every processor: seconds on a busy machine.
static COLLAPSES: Raced<Pause> = Raced::new();

impl Region {
    /// Allocates memory or blocks for a range, in huge pages where the system provides them, so
    /// that touching it cannot fail later.
    pub(crate) fn populate(&self, offset: u64, bytes: u64) -> Result<()> {
        let Some(file) = self.shared_file() else { return Ok(()) };
        if !self.in_memory {
            let reserved = failpoint::call("fallocate", || {
                rustix::fs::fallocate(file.as_fd(), rustix::fs::FallocateFlags::empty(), offset, bytes)
            });
            return match reserved {
                Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(full_or(error, offset + bytes)),
            };
        }
        let huge = bytes.is_multiple_of(HUGE_BYTES) && offset.is_multiple_of(HUGE_BYTES);
        // One page first: a range that consists only of holes does not collapse.
        self.populate_write(offset, PAGE_BYTES as u64)?;
        let start = self.base.wrapping_add(offset as usize);
        if huge && collapse(start, bytes as usize) { Ok(()) } else { self.populate_write(offset, bytes) }
    }

    fn populate_write(&self, offset: u64, bytes: u64) -> Result<()> {
        let populated = failpoint::call("populate", || self.advise(offset, bytes, libc::MADV_POPULATE_WRITE));
        match populated {
            // Kernels before 5.14: pages come when they are touched.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(full_or(error, offset + bytes)),
        }
    }

    fn advise(&self, offset: u64, bytes: u64, advice: i32) -> rustix::io::Result<()> {
        assert!(offset + bytes <= self.len(), "advice beyond the region");
        let start = self.base.wrapping_add(offset as usize);
        // SAFETY: the range lies within the mapping, and neither advice changes what is in it.
        let answer = unsafe { libc::madvise(start.cast(), bytes as usize, advice) };
        if answer == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }

    /// Returns how many bytes of the region are mapped by huge pages, according to the kernel, which looks at each page
    /// of all mappings of the process.
    pub fn huge_bytes(&self) -> u64 {
        let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return 0 };
        let (first, end) = (self.base.addr() as u64, self.base.addr() as u64 + self.reserved);
        let (mut inside, mut sum) = (false, 0);
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let Some(word) = words.next() else { continue };
            if let Some((from, _)) = word.split_once('-') {
                inside = u64::from_str_radix(from, 16).is_ok_and(|from| (first..end).contains(&from));
            } else if inside && matches!(word, "ShmemPmdMapped:" | "FilePmdMapped:" | "AnonHugePages:") {
                sum += words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
            }
        }
        sum
    }
}

/// Makes a range of a mapping huge pages, and returns whether it succeeded. The range must start at
/// a huge page and have memory for at least one page.
pub(crate) fn collapse(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: no byte of the range changes, wherever it is.
    let collapse = || unsafe { libc::madvise(start.cast(), bytes, MADV_COLLAPSE) } == 0;
    COLLAPSES.get_or_make(|| Box::new(Pause::new())).outside(collapse) == Some(true)
}
