//! Checksums of the files of an archive.

use bristlecone_pm::{Error, Result, Storage, StoredFile};

use crate::journal::aside;

/// Reads a file of an archive, and compares its length and checksum.
///
/// # Errors
///
/// [`Error::Corrupted`], and errors of the system.
pub fn expect_sum(
    of: &dyn Storage,
    file: &dyn StoredFile,
    name: &str,
    bytes: u64,
    checksum: u32,
) -> Result<()> {
    let broken = |what: &str| Error::corrupted(what, format!("{name} in {}", of.describe()));
    if file.bytes()? != bytes {
        return Err(broken("a file of another length"));
    }
    match aside::pass(file, 0..bytes, 0, |_, _| Ok(()))? {
        (read, _) if read < bytes => Err(broken("a file that cannot be read to its end")),
        (_, sum) if sum == checksum => Ok(()),
        _ => Err(broken("a damaged file")),
    }
}
