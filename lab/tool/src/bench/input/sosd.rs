//! Key files in the format of the SOSD benchmark: the number of keys, then the keys; little-endian.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;

/// Reads all keys of a file, of 8 or 4 bytes each. Returns them sorted, without duplicates.
pub fn read(path: &Path) -> Outcome<Vec<u64>> {
    let io = |error: std::io::Error| Failure::io(path.display(), &error);
    let bad = |what: String| Failure::new(Exit::BadInput, format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut word = [0; 8];
    if bytes < 8 {
        return Err(bad(format!("not a file of keys: it has {bytes} bytes, and its count alone takes 8")));
    }
    file.read_exact(&mut word).map_err(io)?;
    let count = u64::from_le_bytes(word);
    let key_bytes = match bytes - 8 {
        keys if Some(keys) == count.checked_mul(8) => 8,
        keys if Some(keys) == count.checked_mul(4) => 4,
        keys => {
            let what = if keys < count.saturating_mul(8) { "it is truncated, or" } else { "it is" };
            return Err(bad(format!(
                "{what} not a file of keys: it says {count} keys, and has {keys} bytes of them"
            )));
        }
    };
    if count == 0 {
        return Err(bad("it has no keys".to_owned()));
    }
    let mut keys = Vec::with_capacity(count as usize);
    for at in 0..count {
        if at % (1 << 20) == 0 {
            interrupt::check("the keys are not read")?;
        }
        word = [0; 8];
        file.read_exact(&mut word[..key_bytes]).map_err(io)?;
        keys.push(u64::from_le_bytes(word));
    }
    if !keys.is_sorted() {
        keys.sort_unstable();
    }
    keys.dedup();
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(count: u64, keys: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&count.to_le_bytes()).unwrap();
        file.write_all(keys).unwrap();
        file
    }

    #[test]
    fn sosd_keys_of_either_width_are_read_in_order_and_once() {
        let wide: Vec<u8> = [5u64, 1, u64::MAX, 5].iter().flat_map(|key| key.to_le_bytes()).collect();
        assert_eq!(read(file(4, &wide).path()).unwrap(), [1, 5, u64::MAX]);
        let narrow: Vec<u8> = [5u32, 1, u32::MAX].iter().flat_map(|key| key.to_le_bytes()).collect();
        assert_eq!(read(file(3, &narrow).path()).unwrap(), [1, 5, u64::from(u32::MAX)]);
    }

    #[test]
    fn sosd_files_that_are_cut_off_or_something_else_are_refused_in_one_line() {
        let said = |file: &tempfile::NamedTempFile| read(file.path()).unwrap_err().line().to_owned();
        assert!(said(&file(1000, &[0; 80])).contains("truncated"));
        assert!(
            said(&file(3, &[0; 23])).contains("truncated"),
            "more than keys of 4 bytes, less than keys of 8"
        );
        assert!(said(&file(3, &[0; 25])).contains("it says 3 keys, and has 25 bytes"));
        assert!(said(&file(u64::MAX, &[0; 16])).contains("truncated"));
        assert!(said(&file(0, &[])).contains("no keys"));
        let mut short = tempfile::NamedTempFile::new().unwrap();
        short.write_all(b"abc").unwrap();
        assert!(said(&short).contains("has 3 bytes"));
        assert!(read(Path::new("/no/such/file")).unwrap_err().line().contains("/no/such/file"));
    }
}
