//! Flush and fence instructions: the only processor-specific code that touches the medium.

use crate::LINE_BYTES;

/// The instruction by which this processor writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushKind {
    /// x86 `clwb`: writes back, keeps the line.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// x86 `clflushopt`: writes back and evicts.
    #[cfg(target_arch = "x86_64")]
    ClflushOpt,
    /// x86 `clflush`: writes lines back one after the other. Every x86-64 processor has it.
    #[cfg(target_arch = "x86_64")]
    Clflush,
    /// ARM `dc cvap`: cleans to the point of persistence (Armv8.2 `dcpop`).
    #[cfg(target_arch = "aarch64")]
    DcCvap,
    /// ARM `dc cvac`: cleans to the point of coherency, which is the point of persistence on
    /// processors without `dcpop`.
    #[cfg(target_arch = "aarch64")]
    DcCvac,
}

impl FlushKind {
    /// Returns the best instruction of this processor.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        // Leaf 7 exists on every processor that has either instruction; older ones report zero.
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        if leaf.ebx & (1 << 24) != 0 {
            Self::Clwb
        } else if leaf.ebx & (1 << 23) != 0 {
            Self::ClflushOpt
        } else {
            Self::Clflush
        }
    }

    /// Returns the best instruction of this processor.
    #[cfg(target_arch = "aarch64")]
    pub fn detect() -> Self {
        if std::arch::is_aarch64_feature_detected!("dpb") { Self::DcCvap } else { Self::DcCvac }
    }

    /// Starts writing back the lines of `[start, start + bytes)`.
    #[inline(always)]
    pub fn flush(self, start: *const u8, bytes: usize) {
        let end = start.addr() + bytes;
        let mut line = start.addr() & !(LINE_BYTES - 1);
        while line < end {
            self.flush_line(start.with_addr(line));
            line += LINE_BYTES;
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn flush_line(self, line: *const u8) {
        use std::arch::asm;
        // SAFETY: write-backs change no memory that the program can observe; the line holds a byte
        // of a value that the caller has a reference to, and `detect` saw the instruction.
        unsafe {
            match self {
                Self::Clwb => asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags)),
                Self::ClflushOpt => asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags)),
                Self::Clflush => asm!("clflush [{0}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn flush_line(self, line: *const u8) {
        use std::arch::asm;
        // SAFETY: as on x86; 0xd50b7c20 | Rt is `dc cvap`, which older assemblers do not name.
        unsafe {
            match self {
                Self::DcCvap => {
                    asm!("sys #3, c7, c12, #1, {0}", in(reg) line, options(nostack, preserves_flags))
                }
                Self::DcCvac => asm!("dc cvac, {0}", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }
}

/// Waits until the flushes of this thread have completed.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn drain() {
    // SAFETY: a fence.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) }
}

/// Waits until the flushes of this thread have completed: this takes a `dsb`; `dmb` is
/// insufficient.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn drain() {
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb sy", options(nostack, preserves_flags)) }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("Bristlecone knows the flush instructions of x86-64 and AArch64 only");

#[cfg(target_endian = "big")]
compile_error!("the pool format is little-endian, and so must be the processor");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushing_changes_nothing() {
        let bytes = vec![7_u8; 1000];
        FlushKind::detect().flush(bytes[3..].as_ptr(), 900);
        drain();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_x86_has_clflush() {
        let line = [1_u8; 64];
        FlushKind::Clflush.flush(line.as_ptr(), 64);
        drain();
        assert_eq!(line[63], 1);
    }
}
