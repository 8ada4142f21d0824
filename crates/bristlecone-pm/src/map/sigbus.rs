//! Handling of SIGBUS: the processor raises it in a thread that touches bytes of a pool that are missing because the
//! file was truncated, or unreadable because a block of the medium is bad.
//!
//! A load cannot return an error, and continuing with invented bytes would be worse than stopping. So the handler
//! reports the pool and the offset in one line and aborts: the process ends by `SIGABRT`. A follower reads a file that
//! another process may truncate. It gets zeros, and a flag tells it that its reads since are invalid. A fault anywhere
//! else is passed to the handler that was installed before.
//!
//! Everything the handler does is async-signal-safe: atomics, `writev`, `abort`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use crate::{Opener, PAGE_BYTES};

/// Number of times that a dropped watch checks whether all handlers have finished.
const LOOKS: usize = 1000;

/// A mapped pool.
struct Mapped {
    first: usize,
    end: usize,
    path: Box<[u8]>,
    /// Set when a fault is answered by a page of zeros; `None`: the process aborts.
    patched: Option<Arc<AtomicBool>>,
    /// In a child the addresses do not belong to the pool.
    opener: Opener,
}

/// An entry of the list of mapped pools. Entries are never freed and are reused.
struct Place {
    mapped: AtomicPtr<Mapped>,
    next: *const Place,
}

static PLACES: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

/// Number of handlers that are reading the list. Entries they may see are not freed.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// The previously installed handler; written once, before our handler is in place.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Guard: while it lives, a fault in the mapping is reported with the pool's path.
#[derive(Debug)]
pub struct Watch(&'static AtomicPtr<Mapped>);

impl Watch {
    /// Watches `bytes` bytes from `base` on, which belong to the pool at `path`.
    pub fn new(base: *const u8, bytes: u64, path: &Path) -> Self {
        Self::over(base, bytes, path, None)
    }

    /// Watches `bytes` bytes from `base` on, which another process may truncate. A missing page is replaced by a page
    /// of zeros, and `patched` is set to tell readers that their reads are invalid.
    pub fn patching(base: *const u8, bytes: u64, path: &Path, patched: &Arc<AtomicBool>) -> Self {
        Self::over(base, bytes, path, Some(Arc::clone(patched)))
    }

    fn over(base: *const u8, bytes: u64, path: &Path, patched: Option<Arc<AtomicBool>>) -> Self {
        // Not a `Once`: a child forked during its initialization would wait forever.
        static INSTALLED: AtomicBool = AtomicBool::new(false);
        if !INSTALLED.load(Acquire) {
            install();
            INSTALLED.store(true, SeqCst);
        }
        let (path, opener) = (path.as_os_str().as_bytes().into(), Opener::this());
        let (first, end) = (base.addr(), base.addr() + bytes as usize);
        let mapped = Box::new(Mapped { first, end, path, patched, opener });
        Self(enlist(Box::into_raw(mapped)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mapped = self.0.swap(std::ptr::null_mut(), SeqCst);
        // A handler that began before the swap may hold the pointer, but finishes soon. In a child such a handler may
        // belong to the parent; the entry is then leaked.
        for _ in 0..LOOKS {
            if LOOKING.load(SeqCst) == 0 {
                // SAFETY: it came from `Box::into_raw`, the swap transferred ownership, and no handler that begins
                // later finds it.
                return drop(unsafe { Box::from_raw(mapped) });
            }
            std::thread::yield_now();
        }
    }
}

/// Puts a mapping into an empty entry, or into a new one.
fn enlist(mapped: *mut Mapped) -> &'static AtomicPtr<Mapped> {
    let empty =
        places().find(|place| place.compare_exchange(std::ptr::null_mut(), mapped, SeqCst, Acquire).is_ok());
    if let Some(place) = empty {
        return place;
    }
    let place = Box::leak(Box::new(Place { mapped: AtomicPtr::new(mapped), next: std::ptr::null() }));
    let mut head = PLACES.load(Acquire);
    loop {
        place.next = head;
        // Pairs with `places`: a thread that finds the entry also sees its contents.
        match PLACES.compare_exchange(head, place, AcqRel, Acquire) {
            Ok(_) => return &place.mapped,
            Err(other) => head = other,
        }
    }
}

fn places() -> impl Iterator<Item = &'static AtomicPtr<Mapped>> {
    let mut place = PLACES.load(Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: places are leaked, and `next` is not changed once a place is in the list.
        let this = unsafe { place.as_ref() }?;
        place = this.next;
        Some(&this.mapped)
    })
}

/// Installs the handler. Several threads may call this at the same time, and a child may call it again: the effect is
/// the same.
fn install() {
    // SAFETY: all zero is a valid `sigaction`.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads what is installed; the pointer is to a live value.
    unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) };
    if previous.sa_sigaction == on_fault as *const () as usize {
        return;
    }
    let previous = Box::into_raw(Box::new(previous));
    if PREVIOUS.compare_exchange(std::ptr::null_mut(), previous, SeqCst, SeqCst).is_err() {
        // SAFETY: it came from `Box::into_raw` just now.
        drop(unsafe { Box::from_raw(previous) });
    }
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_fault as *const () as usize;
    // On the alternate stack where a thread has one, as the handler of Rust itself.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is async-signal-safe. If the system refuses, faults end the process without a report, as
    // they would without this handler.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) };
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer with SA_SIGINFO, and SIGBUS has an address.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    // A signal that a process sent (`si_code` not above zero) has no address.
    if code > 0 {
        LOOKING.fetch_add(1, SeqCst);
        for place in places() {
            // SAFETY: the contents of an entry are freed only while no handler is counted in `LOOKING`.
            let Some(mapped) = (unsafe { place.load(SeqCst).as_ref() }) else { continue };
            if (mapped.first..mapped.end).contains(&address) && mapped.opener.is_here() {
                if mapped.patched.as_ref().is_some_and(|patched| patch(address, patched)) {
                    LOOKING.fetch_sub(1, SeqCst);
                    return;
                }
                report(&mapped.path, address - mapped.first, code);
                // SAFETY: always; async-signal-safe.
                unsafe { libc::abort() };
            }
        }
        LOOKING.fetch_sub(1, SeqCst);
    }
    pass_on(signal, info, context);
}

/// Maps a page of zeros over a missing one, and records that. Async-signal-safe: one system call and one store.
fn patch(address: usize, patched: &AtomicBool) -> bool {
    let page = std::ptr::without_provenance_mut(address & !(PAGE_BYTES - 1));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    patched.store(true, SeqCst);
    // SAFETY: a page of a mapping that is only read, and its contents are trusted only if no page was patched.
    unsafe { libc::mmap(page, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED }
}

/// Writes one line to standard error, in one call.
fn report(path: &[u8], offset: usize, code: i32) {
    let why: &[u8] = match code {
        libc::BUS_ADRERR => b"the file was truncated, or its medium cannot be read",
        // BUS_MCEERR_AR and BUS_MCEERR_AO: the machine's own check found it.
        4 | 5 => b"the memory is damaged",
        _ => b"it cannot be read",
    };
    let mut digits = [0; 16];
    let pieces: [&[u8]; 7] = [
        b"bristlecone: ",
        path,
        b": bus error at byte 0x",
        hexadecimal(offset, &mut digits),
        b" of the pool: ",
        why,
        b"; aborting\n",
    ];
    let pieces =
        pieces.map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
    // SAFETY: the pieces are live. A failed write is ignored.
    unsafe { libc::writev(libc::STDERR_FILENO, pieces.as_ptr(), pieces.len() as i32) };
}

fn hexadecimal(mut number: usize, digits: &mut [u8; 16]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Passes a fault outside the watched mappings to the previous handler.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: set before our handler was installed, and never freed or changed.
    let previous = unsafe { &*PREVIOUS.load(Acquire) };
    match previous.sa_sigaction {
        // If a fault were ignored it would be raised again forever, so the kernel does not ignore it; nor does this
        // handler.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zero is a valid `sigaction`: the default action.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: async-signal-safe. The instruction runs again and ends the process; a signal that was sent by a
            // process is sent again.
            unsafe {
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO a handler has these three arguments.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO a handler has one argument.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_written_in_hexadecimal() {
        for number in [0, 1, 15, 16, 0x0012_3456_789a_bcde, usize::MAX] {
            assert_eq!(hexadecimal(number, &mut [0; 16]), format!("{number:x}").as_bytes());
        }
    }

    #[test]
    fn places_are_used_again() {
        let watches: Vec<_> =
            (0..10).map(|i| Watch::new(std::ptr::without_provenance(i), 1, Path::new("p"))).collect();
        drop(watches);
        let many = places().count();
        for i in 0..1000 {
            drop(Watch::new(std::ptr::without_provenance(i), 1, Path::new("p")));
        }
        // Other tests of this process have pools of their own.
        assert!(places().count() < many + 500);
    }
}
