//! Single-steps the native medium: it writes back and syncs exactly the requested lines and pages, and the
//! fence comes last.
//!
//! The processor traps after each instruction while its trap flag is set. The handler inspects the next one:
//! `clwb`, `clflushopt` and `clflush` with their addresses, `sfence`, and system calls. So the test covers
//! the compiled code, and needs no other process.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::arch::asm;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};

use bristlecone_pm::{Domain, Flushed, LINE_BYTES, Medium, Native, Persist};

const PAGE_BYTES: usize = 4096;

/// An instruction that is relevant to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    /// Wrote back the line of an address.
    Flush(usize),
    Fence,
    /// Synced bytes from an address on, with these flags.
    Sync(usize, usize, usize),
}

/// Words of the recording: a kind and three arguments for each entry.
const RECORD: usize = 4 * 4096;
static RECORDED: [AtomicU64; RECORD] = [const { AtomicU64::new(0) }; RECORD];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

fn record(entry: [usize; 4]) {
    let at = LENGTH.fetch_add(1, Relaxed) * 4;
    for (cell, word) in RECORDED[at..at + 4].iter().zip(entry) {
        cell.store(word as u64, Relaxed);
    }
}

/// The number of a register, as instructions encode it, in the saved context.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the interrupted context, which no other code uses.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |number: libc::c_int| registers[number as usize] as usize;
    let code = register(libc::REG_RIP) as *const u8;
    // SAFETY: the next instruction is about to be executed, so its bytes exist; further bytes are read only
    // where the ones before imply them.
    let byte = |at: usize| unsafe { *code.add(at) };
    let mut at = 0;
    let is_wide = byte(0) == 0x66;
    at += usize::from(is_wide);
    let extension = if byte(at) & 0xf0 == 0x40 { byte(at) } else { 0 };
    at += usize::from(extension != 0);
    if byte(at) != 0x0f {
        return;
    }
    if byte(at + 1) == 0x05 {
        let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(register);
        if register(libc::REG_RAX) == libc::SYS_msync as usize {
            record([2, arguments[0], arguments[1], arguments[2]]);
        }
    } else if byte(at + 1) == 0xae {
        let modes = byte(at + 2);
        let (kind, operation) = (modes >> 6, modes >> 3 & 7);
        match (kind, operation) {
            (3, 7) => record([1, 0, 0, 0]),
            (0..3, 6 | 7) if is_wide || operation == 7 => {
                record([0, address(&byte, at + 3, modes, extension, &register), 0, 0]);
            }
            _ => {}
        }
    }
}

/// Returns the address operand of an instruction: a base, an index, and a displacement.
fn address(
    byte: &dyn Fn(usize) -> u8,
    mut at: usize,
    modes: u8,
    extension: u8,
    register: &dyn Fn(libc::c_int) -> usize,
) -> usize {
    let named = |low: u8, high: u8| register(REGISTERS[usize::from(low & 7 | high << 3)]);
    let sum = if modes & 7 == 4 {
        let scale = byte(at);
        at += 1;
        let index = if scale >> 3 & 7 == 4 && extension & 2 == 0 {
            0
        } else {
            named(scale >> 3, extension >> 1 & 1) << (scale >> 6)
        };
        index.wrapping_add(named(scale, extension & 1))
    } else {
        named(modes, extension & 1)
    };
    let distance = match modes >> 6 {
        0 => 0,
        1 => isize::from(byte(at) as i8),
        _ => i32::from_le_bytes(std::array::from_fn(|offset| byte(at + offset))) as isize,
    };
    sum.wrapping_add_signed(distance)
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zero is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler is async-signal-safe: it reads registers and code, and stores to atomics.
        assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()) }, 0);
    });
}

/// Runs a function and returns its accesses to the medium.
fn traced(run: impl FnOnce()) -> Vec<Did> {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    install();
    LENGTH.store(0, Relaxed);
    // The instruction behind the one that sets the flag is not recorded. SAFETY: the handler is in place,
    // and the flag is this thread's alone.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop") };
    run();
    // SAFETY: as above.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
    let words = RECORDED[..LENGTH.load(Relaxed) * 4].chunks(4);
    let did = words.map(|entry| {
        let [kind, first, second, third] = std::array::from_fn(|at| entry[at].load(Relaxed) as usize);
        match kind {
            0 => Did::Flush(first),
            1 => Did::Fence,
            _ => Did::Sync(first, second, third),
        }
    });
    did.collect()
}

/// Returns page-aligned bytes, and their start.
fn pages(count: usize) -> (Vec<u8>, usize) {
    let bytes = vec![0; (count + 1) * PAGE_BYTES];
    let first = bytes.as_ptr().addr().next_multiple_of(PAGE_BYTES) - bytes.as_ptr().addr();
    (bytes, first)
}

/// Returns starts and lengths of ranges: within a line, at its ends, across several, across pages.
fn ranges() -> impl Iterator<Item = (usize, usize)> {
    let starts = [0, 1, 56, 63, 100, 4088];
    let lengths = [1, 8, 57, 64, 65, 129, 1000, 4097];
    starts.into_iter().flat_map(move |start| lengths.into_iter().map(move |bytes| (start, bytes)))
}

/// The lines that hold a byte of a range, found byte by byte.
fn lines_of(start: usize, bytes: usize) -> BTreeMap<usize, usize> {
    (start..start + bytes).map(|byte| (byte / LINE_BYTES, 1)).collect()
}

/// Checks that exactly the lines of a range were written back, each once, and then a fence was executed.
fn writes_back(did: &[Did], start: usize, bytes: usize) {
    let (last, flushes) = did.split_last().expect("something was done");
    assert_eq!(*last, Did::Fence, "{bytes} bytes at {start:#x}");
    let mut lines = BTreeMap::new();
    for did in flushes {
        let Did::Flush(address) = did else {
            panic!("{did:?} among the flushes of {bytes} bytes at {start:#x}")
        };
        *lines.entry(address / LINE_BYTES).or_default() += 1;
    }
    assert_eq!(lines, lines_of(start, bytes), "{bytes} bytes at {start:#x}");
}

#[test]
fn the_lines_of_a_range_are_written_back_and_then_comes_a_fence() {
    let (bytes, first) = pages(4);
    let native = Native::new(Domain::Adr);
    for (start, len) in ranges() {
        let range = &bytes[first + start..][..len];
        let did = traced(|| {
            let flushed = native.flush(range, "test");
            let _durable = native.fence(flushed, "test");
        });
        writes_back(&did, range.as_ptr().addr(), len);
    }
}

#[test]
fn a_slower_medium_does_the_same() {
    let (bytes, first) = pages(1);
    let delayed = Native::delayed(Domain::Adr, std::time::Duration::ZERO);
    let range = &bytes[first + 60..][..300];
    let did = traced(|| delayed.persist(range, "test"));
    writes_back(&did, range.as_ptr().addr(), range.len());
}

#[test]
fn surviving_caches_need_a_fence_and_shared_memory_nothing() {
    let (bytes, first) = pages(1);
    for (domain, due) in [(Domain::Eadr, vec![Did::Fence]), (Domain::Process, vec![])] {
        let native = Native::new(domain);
        let did = traced(|| native.persist(&bytes[first + 60..][..300], "test"));
        assert_eq!(did, due, "{domain}");
    }
}

#[test]
fn the_pages_of_ranges_are_synced_at_the_fence() {
    let (bytes, first) = pages(8);
    let base = bytes[first..].as_ptr().addr();
    let native = Native::new(Domain::Msync);
    // First, a fence that has nothing to sync: it ignores what other media flushed.
    assert_eq!(traced(|| _ = native.fence(Flushed::none(), "test")), []);
    for (start, len) in ranges() {
        // One more byte lies far behind the range, and the range is flushed twice.
        let (range, far) = (&bytes[first + start..][..len], &bytes[first + 7 * PAGE_BYTES..][..1]);
        let mut did = Vec::new();
        for flushes in [true, false] {
            did.push(traced(|| {
                if flushes {
                    for range in [far, range, range] {
                        native.flush_lines(range.as_ptr(), range.len(), "test");
                    }
                } else {
                    native.drain("test");
                }
            }));
        }
        assert_eq!(did[0], [], "a flush waits for nothing");
        let mut due: BTreeMap<usize, usize> =
            (start..start + len).map(|byte| (byte / PAGE_BYTES, 1)).collect();
        due.insert(7, 1);
        let mut synced = BTreeMap::new();
        for did in &did[1] {
            let Did::Sync(address, bytes, flags) = *did else { panic!("{did:?}") };
            assert_eq!(flags, libc::MS_SYNC as usize, "it does not wait");
            assert_eq!((address % PAGE_BYTES, bytes % PAGE_BYTES), (0, 0));
            for page in (address - base) / PAGE_BYTES..(address - base + bytes) / PAGE_BYTES {
                *synced.entry(page).or_default() += 1;
            }
        }
        assert_eq!(synced, due, "{len} bytes at {start:#x}");
        assert!(!native.failed());
    }
}

/// The handler recognizes every register and displacement, and ignores other instructions.
#[test]
fn addresses_are_read_from_the_instructions() {
    let (bytes, first) = pages(2);
    let base = bytes[first..].as_ptr().addr();
    let did = traced(|| {
        // SAFETY: the lines are those of `bytes`; flushing changes nothing.
        unsafe {
            asm!("clflush [{0}]", in(reg) base);
            asm!("clflush [{0} + 64]", in(reg) base);
            asm!("clflush [{0} + 0x1000]", in(reg) base);
            asm!("clflush [{0} + {1} * 8 + 3]", in(reg) base, in(reg) 16_usize);
            asm!("clflush [r12]", in("r12") base);
            asm!("clflush [r13 + 64]", in("r13") base);
            asm!("clflush [rsi]", "mfence", "sfence", in("rsi") base);
        }
    });
    let at = |offset| Did::Flush(base + offset);
    assert_eq!(did, [at(0), at(64), at(0x1000), at(131), at(0), at(64), at(0), Did::Fence]);
}
