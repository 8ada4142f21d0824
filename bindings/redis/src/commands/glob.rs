//! Patterns of `MATCH`, as `SCAN` and `HSCAN` have them: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before what stands for itself.

/// A pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Returns the pattern that an argument is.
    pub fn new(pattern: &[u8]) -> Self {
        Self(pattern.to_vec())
    }

    /// Returns what all that it matches begins with.
    pub fn prefix(&self) -> Vec<u8> {
        let mut prefix = Vec::new();
        let mut rest = self.0.iter();
        while let Some(byte) = rest.next() {
            match byte {
                b'*' | b'?' | b'[' => break,
                b'\\' => prefix.push(*rest.next().unwrap_or(byte)),
                byte => prefix.push(*byte),
            }
        }
        prefix
    }

    /// Returns whether it matches all of a text. It takes time in the product of both lengths at most.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut pattern, mut at) = (self.0.as_slice(), 0);
        // Where the last star is tried again: what follows it, and the text from there.
        let mut star: Option<(&[u8], usize)> = None;
        loop {
            if let [b'*', rest @ ..] = pattern {
                (pattern, star) = (rest, Some((rest, at)));
                continue;
            }
            let next = text.get(at).and_then(|byte| one(pattern, *byte));
            match (next, star) {
                (Some(rest), _) => (pattern, at) = (rest, at + 1),
                (None, _) if at == text.len() && pattern.is_empty() => return true,
                (None, Some((rest, from))) if from < text.len() => {
                    (pattern, at, star) = (rest, from + 1, Some((rest, from + 1)));
                }
                (None, _) => return false,
            }
        }
    }
}

/// Returns what follows the first element of a pattern, if that matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (is_in, rest) = class(rest, byte);
            is_in.then_some(rest)
        }
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [other, rest @ ..] => (*other == byte).then_some(rest),
    }
}

/// Returns whether a class has a byte, and what follows the class. One that does not end reaches to the end of the pattern.
fn class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (inverts, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', rest @ ..] => {
                return (is_in != inverts, rest);
            }
            [b'\\', one, rest @ ..] => {
                is_in |= *one == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                is_in |= *one == byte;
                rest
            }
        };
    }
    (is_in != inverts, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern.as_bytes()).matches(text.as_bytes())
    }

    #[test]
    fn patterns_match_as_those_of_scan() {
        let table = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("a*b*c", "aXbYbZc", true),
            ("*a*", "bab", true),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("user:*:name", "user:17:name", true),
            ("user:*:name", "user:17:names", false),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        // What takes exponential time with recursion.
        assert!(!matches(&"a*".repeat(60), &("a".repeat(59) + "b")));
    }

    #[test]
    fn prefix_is_what_every_match_begins_with() {
        for (pattern, prefix) in
            [("user:*", "user:"), ("*", ""), ("a\\*b?", "a*b"), ("x[ab]", "x"), ("all", "all")]
        {
            assert_eq!(Pattern::new(pattern.as_bytes()).prefix(), prefix.as_bytes(), "{pattern}");
        }
    }
}
