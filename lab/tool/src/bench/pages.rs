//! Page sizes of this process's memory, as reported by the kernel.

use std::path::Path;

use serde::Serialize;

/// Resident bytes, and how many of these are mapped by pages of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    pub resident_bytes: u64,
    pub huge_bytes: u64,
}

impl Pages {
    /// Reads the figures of this process; zero if the kernel does not report them.
    pub fn of_process() -> Self {
        Self::read(Path::new("/proc/self/smaps_rollup"))
            .or_else(|| Self::read(Path::new("/proc/self/smaps")))
            .unwrap_or_default()
    }

    fn read(path: &Path) -> Option<Self> {
        std::fs::read_to_string(path).ok().map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut pages = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let mut bytes = || words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
            match name {
                "Rss:" => pages.resident_bytes += bytes(),
                "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => pages.huge_bytes += bytes(),
                // Pages of hugetlbfs are in no resident set.
                "Private_Hugetlb:" | "Shared_Hugetlb:" => {
                    let more = bytes();
                    pages.huge_bytes += more;
                    pages.resident_bytes += more;
                }
                _ => {}
            }
        }
        pages
    }

    /// Returns the difference to `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.saturating_sub(before.resident_bytes),
            huge_bytes: self.huge_bytes.saturating_sub(before.huge_bytes),
        }
    }

    /// Returns the share that is mapped by pages of 2 MiB, in percent.
    pub fn huge_percent(self) -> u64 {
        (self.huge_bytes * 100).checked_div(self.resident_bytes).unwrap_or(0).min(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_summed_over_mappings_of_every_sort() {
        let text = "\
7f00-7f40 rw-s 00000000 00:01 7 /dev/shm/pool
Rss:                4096 kB
ShmemPmdMapped:     2048 kB
5500-5540 rw-p 00000000 00:00 0 [heap]
Rss:                4096 kB
AnonHugePages:      4096 kB
FilePmdMapped:         0 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr";
        let pages = Pages::parse(text);
        assert_eq!(pages, Pages { resident_bytes: 10 << 20, huge_bytes: 8 << 20 });
        assert_eq!(pages.huge_percent(), 80);
        assert_eq!(Pages::default().huge_percent(), 0);
    }

    #[test]
    fn pages_of_this_process_grow_with_what_it_touches() {
        let before = Pages::of_process();
        assert!(before.resident_bytes > 0);
        let mut memory = vec![0u8; 16 << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let grown = Pages::of_process().since(before);
        assert!(grown.resident_bytes >= 15 << 20, "{grown:?} for {}", memory.len());
    }
}
