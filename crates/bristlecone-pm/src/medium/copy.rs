//! Copies words that other threads may store concurrently, without tearing any word.

use std::sync::atomic::AtomicU64;

/// Copies `count` words.
///
/// Processors load and store aligned words atomically, also in vector instructions. Their manuals do not promise this
/// for vectors, so the language has no such copy.
///
/// # Safety
///
/// `from` and `to` must be valid for `count` words. Other threads may not use the words at `to` except through
/// atomics, which see each word whole.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn words(from: *const AtomicU64, to: *mut u64, count: usize) {
    use std::arch::asm;

    const LINE: usize = 8;
    const PAIR: usize = 2;
    if !std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the caller's.
        return unsafe { one_by_one(from, to, count) };
    }
    let whole = count / LINE;
    for at in 0..whole {
        // SAFETY: the caller's; the feature was detected.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 [{to}], zmm16",
                from = in(reg) from.add(at * LINE),
                to = in(reg) to.add(at * LINE),
                out("xmm16") _,
                options(nostack, preserves_flags),
            );
        }
    }
    for at in (whole * LINE..count - count % PAIR).step_by(PAIR) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "movups xmm0, [{from}]",
                "movups [{to}], xmm0",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
                out("xmm0") _,
                options(nostack, preserves_flags),
            );
        }
    }
    let copied = count - count % PAIR;
    // SAFETY: as above.
    unsafe { one_by_one(from.add(copied), to.add(copied), count - copied) };
}

/// Copies `count` words.
///
/// # Safety
///
/// As above.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub unsafe fn words(from: *const AtomicU64, to: *mut u64, count: usize) {
    // SAFETY: the caller's.
    unsafe { one_by_one(from, to, count) }
}

unsafe fn one_by_one(from: *const AtomicU64, to: *mut u64, count: usize) {
    for at in 0..count {
        // SAFETY: within what the caller promised.
        unsafe {
            let word = (*from.add(at)).load(std::sync::atomic::Ordering::Acquire);
            (*to.add(at).cast::<AtomicU64>()).store(word, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exact_and_end_where_they_should() {
        let from: Vec<AtomicU64> = (1..100).map(AtomicU64::new).collect();
        for copy in [words, one_by_one] {
            for count in 0..=64 {
                for skipped in 0..8 {
                    let mut to = [0; 80];
                    // SAFETY: both arrays are longer than that.
                    unsafe { copy(from[skipped..].as_ptr(), to[8..].as_mut_ptr(), count) };
                    let expected =
                        |at: usize| if (8..8 + count).contains(&at) { (at - 7 + skipped) as u64 } else { 0 };
                    assert!(to.iter().enumerate().all(|(at, &word)| word == expected(at)), "{count} words");
                }
            }
        }
    }
}
