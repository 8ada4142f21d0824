//! Sizes as people write them: `8G`, `512MiB`, `4096`.

/// Reads a size. Units are powers of two: K, M, G, T, with or without `B` or `iB`.
pub fn parse(text: &str) -> Result<u64, String> {
    let said = || format!("{text:?} is not a size: write bytes, or a number with K, M, G or T, such as 8G");
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
        return bytes.ok_or_else(|| format!("{text:?} is out of range: 1 byte to 2^64 - 1 bytes"));
    }
    let number: f64 = number.parse().map_err(|_| said())?;
    let bytes = number * (1u64 << power) as f64;
    if (1.0..1.8e19).contains(&bytes) { Ok(bytes as u64) } else { Err(said()) }
}

/// Reads a count: like a size, but K, M and G are powers of ten: `10M` keys.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let said =
        || format!("{text:?} is not a count: write a number, with k, M or G for thousands, such as 10M");
    let (number, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1_000),
        Some('m' | 'M') => (&text[..text.len() - 1], 1_000_000),
        Some('g' | 'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = number.replace(['_', ','], "").parse().map_err(|_| said())?;
    number.checked_mul(factor).ok_or_else(said)
}

/// Writes a size: `8 GiB`, `1.5 MiB`, `312 B`.
pub fn show(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, power)| bytes >= 1 << power) {
        None => format!("{bytes} B"),
        Some((unit, power)) if bytes.is_multiple_of(1 << power) => format!("{} {unit}", bytes >> power),
        Some((unit, power)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << power) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("8G"), Ok(8 << 30));
        assert_eq!(parse("8g"), Ok(8 << 30));
        assert_eq!(parse("64 MiB"), Ok(64 << 20));
        assert_eq!(parse("64MB"), Ok(64 << 20));
        assert_eq!(parse("1.5K"), Ok(1536));
        for wrong in ["", "G", "-1", "0", "8X", "1e9", "99999999T", "1.2.3", "ten"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_decimal() {
        assert_eq!(parse_count("10M"), Ok(10_000_000));
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert_eq!(parse_count("0"), Ok(0));
        for wrong in ["", "M", "-1", "1.5M", "99999999999G"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_for_people() {
        assert_eq!(show(312), "312 B");
        assert_eq!(show(8 << 30), "8 GiB");
        assert_eq!(show(1536), "1.5 KiB");
    }
}
