//! The words after the module's path.

use crate::store::Options;

const USAGE: &str = "pool PATH [max-bytes BYTES] [design NAME] [domain NAME] [categories required|optional]";

/// Returns the options that words are.
pub fn read(words: &[&[u8]]) -> Result<Options, String> {
    let mut options = Options::default();
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(format!("an argument without a value: {USAGE}")) };
        let value = std::str::from_utf8(value).map_err(|_| "an argument that is not UTF-8".to_owned())?;
        match *name {
            b"pool" => options.pool = value.to_owned(),
            b"max-bytes" => options.max_bytes = Some(size(value)?),
            b"design" => options.design = Some(value.parse().map_err(|error| format!("{error}"))?),
            b"categories" => options.needs_categories = is_required(value)?,
            b"domain" => options.domain = Some(value.parse().map_err(|error| format!("{error}"))?),
            other => return Err(format!("unknown argument {:?}: {USAGE}", String::from_utf8_lossy(other))),
        }
    }
    if options.pool.is_empty() {
        return Err(format!("no pool is named: {USAGE}"));
    }
    Ok(options)
}

/// Returns whether the server must know categories of a module's commands.
fn is_required(word: &str) -> Result<bool, String> {
    match word {
        "required" => Ok(true),
        "optional" => Ok(false),
        _ => Err(format!("categories {word:?}: required or optional")),
    }
}

/// Returns how many bytes a word means, as the server's own configuration does: `64mb`, `1g` and so on.
fn size(word: &str) -> Result<u64, String> {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let unit: u64 = match word[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err(format!("max-bytes {word:?} is no size: a number, or one with kb, mb or gb")),
    };
    let bytes = word[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("max-bytes {word:?} is no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_of_all_options() {
        let words: [&[u8]; 8] =
            [b"pool", b"/p", b"max-bytes", b"64mb", b"design", b"nbtree", b"domain", b"process"];
        let options = read(&words).unwrap();
        assert_eq!((options.pool.as_str(), options.max_bytes), ("/p", Some(64 << 20)));
        assert_eq!(
            (options.design.unwrap().name(), options.domain.unwrap().to_string()),
            ("nbtree", "process".to_owned())
        );
    }

    #[test]
    fn read_refuses_what_it_does_not_know() {
        let refused: [&[&[u8]]; 8] = [
            &[b"pool", b"/p", b"categories", b"some"],
            &[],
            &[b"pool"],
            &[b"design", b"nbtree"],
            &[b"pool", b"/p", b"size", b"1"],
            &[b"pool", b"/p", b"max-bytes", b"many"],
            &[b"pool", b"/p", b"design", b"oak"],
            &[b"pool", b"\xff"],
        ];
        for words in refused {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
