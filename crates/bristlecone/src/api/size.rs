//! Human-readable sizes.

use bristlecone_pm::{Error, Result};

/// Parses a size such as `4096`, `8G` or `1.5 MiB` into bytes.
///
/// Units are powers of two: K, M, G and T, with or without `B` or `iB`, in any case. The tool and
/// the bindings parse sizes with this function.
///
/// # Errors
///
/// [`Error::Invalid`] for other input, for zero, and above 2^64 - 1 bytes.
///
/// ```
/// assert_eq!(bristlecone::parse_size("2G").unwrap(), 2 << 30);
/// assert!(bristlecone::parse_size("many").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64> {
    let said = || {
        Error::invalid(format!(
            "{text:?} is not a size: write bytes, or a number with K, M, G or T, such as 8G"
        ))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let power = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(said()),
    };
    if let Ok(number) = number.parse::<u64>() {
        let bytes = number.checked_mul(1 << power).filter(|bytes| *bytes > 0);
        let refused = || Error::invalid(format!("{text:?} is out of range: 1 byte to 2^64 - 1 bytes"));
        return bytes.ok_or_else(refused);
    }
    let number: f64 = number.parse().map_err(|_| said())?;
    let bytes = number * (1u64 << power) as f64;
    if (1.0..1.8e19).contains(&bytes) { Ok(bytes as u64) } else { Err(said()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        let read = [
            ("4096", 4096),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("64 MiB", 64 << 20),
            ("64MB", 64 << 20),
            ("1.5K", 1536),
        ];
        for (text, bytes) in read {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for wrong in ["", "G", "-1", "0", "8X", "1e9", "99999999T", "1.2.3", "ten"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
