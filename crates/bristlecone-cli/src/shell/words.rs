//! Splitting a line into words.

/// Splits a line at spaces. Quotes of both kinds keep words together. Text in single quotes is verbatim; in double
/// quotes, `\"` and `\\` mean a quote and a backslash. Elsewhere a backslash is literal, so that `\x00` in bytes
/// needs no quotes. A word that begins with `#` begins a comment.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' => words.extend(word.take()),
            '#' if word.is_none() => break,
            quote @ ('"' | '\'') => quoted(quote, &mut rest, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the closing quote.
fn quoted(quote: char, rest: &mut std::str::Chars<'_>, to: &mut String) -> Result<(), String> {
    loop {
        let said = || format!("an unterminated {quote}");
        match rest.next().ok_or_else(said)? {
            end if end == quote => return Ok(()),
            '\\' if quote == '"' && rest.as_str().starts_with(['"', '\\']) => to.extend(rest.next()),
            other => to.push(other),
        }
    }
}

/// Returns the start of the last word of a line, for completion.
pub fn last(line: &str) -> usize {
    line.rfind([' ', '\t']).map_or(0, |space| space + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_held_together_by_quotes() {
        let words = |line: &str| split(line).unwrap();
        assert_eq!(words("  get a\tb  "), ["get", "a", "b"]);
        assert_eq!(words(r#"put "a b" 'c "d"'"#), ["put", "a b", "c \"d\""]);
        assert_eq!(words(r#"get '["x", 7]' [1]"#), ["get", r#"["x", 7]"#, "[1]"]);
        assert_eq!(words(r#"get "[\"x\\y\"]" \x00\xff"#), ["get", r#"["x\y"]"#, r"\x00\xff"]);
        assert_eq!(words("put '' \"\""), ["put", "", ""]);
        assert_eq!(words("# a comment"), [""; 0]);
        assert_eq!(words("get a#b # c"), ["get", "a#b"]);
        assert_eq!(words(r#"a"b c"d"#), ["ab cd"]);
    }

    #[test]
    fn an_open_quote_is_refused() {
        assert!(split("get 'a").is_err() && split("get \"a\\\"").is_err());
    }
}
