//! Identifies the process that opened a pool. A forked child inherits its parent's handles, but
//! neither the pool nor the threads that use it. The child must detect this, at the cost of one load.
//!
//! Every process that opens pools has a number, in a word that the kernel zeroes in a child,
//! independent of the call that made it (`MADV_WIPEONFORK`). Where the kernel cannot, a `fork` handler
//! zeroes it. A pool stores the number of its opener. A child that opens pools takes the next number,
//! which none of its ancestors has.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags};

use crate::PAGE_BYTES;

/// The word with this process's number; null until it is needed.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The last number taken by this process or, before the fork, by its ancestors.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Used instead of the page where the kernel cannot wipe pages.
static PLAIN: AtomicU64 = AtomicU64::new(0);

/// Identity of the process that opened an object.
#[derive(Clone, Copy, Debug)]
pub struct Opener {
    word: &'static AtomicU64,
    number: u64,
    pid: u32,
}

impl Opener {
    /// Returns the calling process.
    pub fn this() -> Self {
        let word = word();
        let pid = std::process::id();
        let found = word.load(Relaxed);
        if found != 0 {
            return Self { word, number: found, pid };
        }
        let taken = LAST.fetch_add(1, Relaxed) + 1;
        let number = word.compare_exchange(0, taken, Relaxed, Relaxed).map_or_else(|other| other, |_| taken);
        Self { word, number, pid }
    }

    /// Reports whether this is the calling process. Async-signal-safe.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        // Relaxed: the kernel changes the word before a child runs, and no other process sees it.
        self.word.load(Relaxed) == self.number
    }

    /// Returns the process's id.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

fn word() -> &'static AtomicU64 {
    // Pairs with the exchange below: a thread that sees the address also sees the page.
    let mut word = WORD.load(Acquire);
    if word.is_null() {
        let made = wiped_page().unwrap_or_else(plain_word);
        word = match WORD.compare_exchange(std::ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(other) => {
                discard(made);
                other
            }
        };
    }
    // SAFETY: a page that stays mapped and is aligned, of which zeros are a value; or a static.
    unsafe { &*word }
}

/// Returns a page of zeros that is zero in every child.
fn wiped_page() -> Option<*mut AtomicU64> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, prot, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the page mapped above; the advice only changes its contents in a child.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } == 0 {
        return Some(page.cast());
    }
    discard(page.cast());
    None
}

/// Returns a word that `fork` itself zeroes in a child.
fn plain_word() -> *mut AtomicU64 {
    extern "C" fn forked() {
        PLAIN.store(0, Relaxed);
    }
    // SAFETY: the handler is async-signal-safe. Without memory for it, the child still does not
    // inherit the pool's mapping.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    std::ptr::from_ref(&PLAIN).cast_mut()
}

fn discard(word: *mut AtomicU64) {
    if !std::ptr::eq(word, &raw const PLAIN) {
        // SAFETY: a page that was mapped above and that no other thread knows.
        let _ = unsafe { rustix::mm::munmap(word.cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of `ask` in a child.
    fn in_child(ask: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls `ask` and exits, by async-signal-safe calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: always.
            unsafe { libc::_exit(i32::from(ask())) };
        }
        let mut status = 0;
        // SAFETY: the status is a live value.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let here = Opener::this();
        assert!(here.is_here() && Opener::this().number == here.number);
        assert!(in_child(|| !here.is_here()));
        assert!(in_child(|| {
            let child = Opener::this();
            child.is_here()
                && !here.is_here()
                && in_child(|| {
                    let grandchild = Opener::this();
                    grandchild.is_here() && !child.is_here() && !here.is_here()
                })
        }));
        assert!(here.is_here());
    }

    #[test]
    fn without_a_wiped_page_fork_zeroes_the_word() {
        // SAFETY: a static.
        let word = unsafe { &*plain_word() };
        word.store(7, Relaxed);
        assert!(in_child(|| word.load(Relaxed) == 0));
        assert_eq!(word.load(Relaxed), 7);
    }
}
