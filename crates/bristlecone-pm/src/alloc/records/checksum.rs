//! CRC-32C of records. Most are short: they skip the set-up that pays for long ones.

/// Number of bytes up to which one instruction after the other is fastest.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 256;

/// Returns the CRC-32C of bytes.
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was detected.
        return unsafe { short(bytes) };
    }
    crc32c::crc32c(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = bytes.as_chunks::<8>();
    let sum = |sum, word: &[u8; 8]| _mm_crc32_u64(sum, u64::from_le_bytes(*word));
    let mut crc = words.iter().fold(u64::from(u32::MAX), sum) as u32;
    if let Some((half, behind)) = rest.split_first_chunk::<4>() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
        rest = behind;
    }
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_bytes_have_the_same_checksum() {
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        for start in 0..9 {
            for len in 0..bytes.len() - start {
                let bytes = &bytes[start..start + len];
                assert_eq!(checksum(bytes), crc32c::crc32c(bytes), "{len} bytes from {start}");
            }
        }
    }
}
