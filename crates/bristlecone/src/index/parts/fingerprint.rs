//! Fingerprints: one byte per slot identifies most non-matching slots; all fingerprints of a node are
//! compared together.

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

use super::search::Level;

/// Number of words of fingerprints that are compared together.
pub const GROUP: usize = 2;

/// Returns the positions at which up to eight `words`, read as bytes, hold `tag`: bit `i` for byte `i`.
/// The words must be whole groups; they may change concurrently. `level` must be the result of
/// [`Level::detect`].
#[inline(always)]
pub fn probe_cells(level: Level, words: &[AtomicU64], tag: u8) -> u64 {
    debug_assert!((1..=8).contains(&words.len()) && words.len().is_multiple_of(GROUP));
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        return probe_avx512(words, tag);
    }
    let _ = level;
    let groups = words.chunks_exact(GROUP).enumerate();
    groups.fold(0, |mask, (at, group)| {
        let words = [group[0].load(Relaxed), group[1].load(Relaxed)];
        mask | probe(words, tag) << (16 * at)
    })
}

/// Compares all bytes together, in assembly for the same reasons as the search of keys.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn probe_avx512(words: &[AtomicU64], tag: u8) -> u64 {
    let mask: u64;
    // SAFETY: the load is masked: it reads the bytes of the words only.
    unsafe {
        std::arch::asm!(
            "kmovq k1, {bytes}",
            "vpbroadcastb zmm16, {tag:e}",
            "vpcmpeqb k1{{k1}}, zmm16, [{start}]",
            "kmovq {mask}, k1",
            bytes = in(reg) u64::MAX >> (64 - 8 * words.len()),
            tag = in(reg) u32::from(tag),
            start = in(reg) words.as_ptr(),
            mask = lateout(reg) mask,
            out("xmm16") _,
            out("k1") _,
            options(readonly, nostack, preserves_flags, pure),
        );
    }
    mask
}

/// Returns the positions at which `words`, read as bytes, hold `tag`: bit `i` for byte `i`.
#[inline(always)]
pub fn probe(words: [u64; GROUP], tag: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    return probe_sse2(words, tag);
    #[cfg(target_arch = "aarch64")]
    return probe_neon(words, tag);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return probe_portable(words, tag);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn probe_sse2(words: [u64; 2], tag: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: every x86-64 has SSE2, and these work on registers.
    unsafe {
        let group = _mm_set_epi64x(words[1] as i64, words[0] as i64);
        let equal = _mm_cmpeq_epi8(group, _mm_set1_epi8(tag as i8));
        _mm_movemask_epi8(equal) as u64
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn probe_neon(words: [u64; 2], tag: u8) -> u64 {
    use std::arch::aarch64::{vceq_u8, vcreate_u8, vdup_n_u8, vget_lane_u64, vreinterpret_u64_u8};
    words.iter().rev().fold(0, |mask, &word| {
        // SAFETY: every AArch64 has NEON, and these work on registers.
        let equal =
            unsafe { vget_lane_u64::<0>(vreinterpret_u64_u8(vceq_u8(vcreate_u8(word), vdup_n_u8(tag)))) };
        mask << 8 | gather(equal & 0x8080_8080_8080_8080)
    })
}

/// Collects the top bits of eight bytes in eight bits.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn gather(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn probe_portable(words: [u64; 2], tag: u8) -> u64 {
    words.iter().rev().fold(0, |mask, &word| {
        let differ = word ^ (0x0101_0101_0101_0101 * u64::from(tag));
        // A byte is zero if neither its low bits nor its top bit is set.
        let low = (differ & 0x7f7f_7f7f_7f7f_7f7f) + 0x7f7f_7f7f_7f7f_7f7f;
        mask << 8 | gather(!(low | differ) & 0x8080_8080_8080_8080)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(words: [u64; 2], tag: u8) -> u64 {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes.enumerate().filter(|&(_, byte)| byte == tag).fold(0, |mask, (at, _)| mask | 1 << at)
    }

    #[test]
    fn every_arm_agrees_with_the_naive_twin() {
        let mut noise = 7_u64;
        for round in 0..100_000_u64 {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            // Few distinct bytes, so that equal ones are common.
            let words = [noise & 0x0103_0180_ff01_0001, noise.rotate_left(23) & 0x8001_0301_0180_ff03];
            let tag = [0, 1, 3, 0x80, 0x81, 0xff, round as u8][round as usize % 7];
            assert_eq!(probe(words, tag), naive(words, tag), "{words:x?} {tag:#x}");
            assert_eq!(probe_portable(words, tag), naive(words, tag), "{words:x?} {tag:#x}");
            let cells = [words, words, [!words[0], words[1]], words].concat();
            let cells: Vec<_> = cells.into_iter().map(AtomicU64::new).collect();
            for groups in 1..=4 {
                let cells = &cells[..GROUP * groups];
                let twin = cells.chunks(GROUP).rev().fold(0, |mask, group| {
                    mask << 16 | naive([group[0].load(Relaxed), group[1].load(Relaxed)], tag)
                });
                for level in [Level::Portable, Level::detect()] {
                    assert_eq!(probe_cells(level, cells, tag), twin, "{words:x?} {tag:#x}");
                }
            }
        }
    }
}
