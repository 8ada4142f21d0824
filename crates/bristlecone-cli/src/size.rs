//! Sizes as people write them: `8G`, `512MiB`, `4096`.

/// Parses a size, like [`bristlecone::parse_size`].
pub fn parse(text: &str) -> Result<u64, String> {
    bristlecone::parse_size(text).map_err(|error| error.to_string())
}

/// Parses a count: like a size, but K, M and G are powers of ten: `10M` keys.
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

/// Formats a size: `8 GiB`, `1.5 MiB`, `312 B`.
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
