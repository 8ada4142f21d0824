//! Descriptions of a pool's medium.

use std::path::Path;

use bristlecone::PoolInfo;

/// Describes the durability of this pool.
pub fn promise(info: &PoolInfo) -> String {
    let warning =
        info.domain.warning(info.detected).map(|warning| format!("; but {warning}")).unwrap_or_default();
    format!("domain {}: survives {}{warning}", info.domain, info.domain.survives())
}

/// Returns the name of the file system that holds a file.
pub fn name(path: &Path) -> String {
    let Ok(stat) = rustix::fs::statfs(path) else { return "unknown".to_owned() };
    match stat.f_type as u64 & 0xffff_ffff {
        0x0102_1994 => "tmpfs",
        0x9584_58f6 => "hugetlbfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        other => return format!("file system {other:#x}"),
    }
    .to_owned()
}

/// Describes the page size in use, where this many bytes are mapped by huge pages.
pub fn pages(info: &PoolInfo, huge_bytes: u64) -> String {
    match huge_bytes * 100 / info.file_bytes.max(1) {
        0 => "4 KiB".to_owned(),
        100.. => "2 MiB".to_owned(),
        percent => format!("2 MiB for {percent} %, otherwise 4 KiB"),
    }
}
