//! Text with names in braces, such as `--records {keys/2}`, and their values.

use std::collections::BTreeMap;

use super::figure::{remark_of, title};

/// Maximum number of names within values of names.
const DEPTH: u32 = 8;

/// Names, and their values, which may contain names.
#[derive(Clone, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Sets the value of a name.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns these names, of which some have other values.
    pub fn with<V: ToString>(&self, others: &BTreeMap<String, V>) -> Self {
        let mut names = self.clone();
        others.iter().for_each(|(name, value)| names.set(name, value.to_string()));
        names
    }

    /// Returns a text with the values of its names.
    ///
    /// Between braces is a name; or names and numbers joined by `+`, `*` and `/`, from left to right, in whole numbers
    /// and at least 1; or `NAME.title` or `NAME.remark` of a design.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        self.fill_at(text, DEPTH)
    }

    fn fill_at(&self, text: &str, depth: u32) -> Result<String, String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("{text:?} has an open brace"))?;
            filled.push_str(before);
            filled.push_str(&self.term(name, depth)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn term(&self, term: &str, depth: u32) -> Result<String, String> {
        if let Some((name, what)) = term.split_once('.') {
            let design = self.value(name, depth)?;
            let title = title(&design).ok_or_else(|| format!("{design:?} has no title"))?;
            return match what {
                "title" => Ok(title.to_owned()),
                "remark" => Ok(remark_of(&design).to_owned()),
                _ => Err(format!("{{{term}}}: a design has a title and a remark")),
            };
        }
        let Some(at) = term.find(['+', '*', '/']) else { return self.value(term, depth) };
        let mut result = self.number(&term[..at], depth)?;
        let mut rest = &term[at..];
        while !rest.is_empty() {
            let end = rest[1..].find(['+', '*', '/']).map_or(rest.len(), |end| end + 1);
            let by = self.number(&rest[1..end], depth)?;
            result = match &rest[..1] {
                "+" => result + by,
                "*" => result * by,
                _ => result.checked_div(by).ok_or_else(|| format!("{{{term}}} divides by 0"))?,
            };
            rest = &rest[end..];
        }
        Ok(result.max(1).to_string())
    }

    fn number(&self, text: &str, depth: u32) -> Result<u64, String> {
        if let Ok(number) = text.parse() {
            return Ok(number);
        }
        let value = self.value(text, depth)?;
        value.parse().map_err(|_| format!("{{{text}}} is {value:?}, which is no whole number"))
    }

    fn value(&self, name: &str, depth: u32) -> Result<String, String> {
        let value = self.0.get(name).ok_or_else(|| format!("unknown name {{{name}}}"))?;
        let depth = depth.checked_sub(1).ok_or_else(|| format!("{{{name}}} contains itself"))?;
        self.fill_at(value, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_have_values() {
        let mut names = Names::default();
        names.set("keys", 1000);
        names.set("design", "wotree");
        names.set("load", "--records {keys} --design {design}");
        names.set("loop", "{loop}");
        let filled = |text| names.fill(text);
        assert_eq!(filled("{load} x").unwrap(), "--records 1000 --design wotree x");
        assert_eq!(filled("{keys*3/10} {keys+1} {keys/2000}").unwrap(), "300 1001 1");
        assert_eq!(filled("{design.title}").unwrap(), "WO-tree");
        for (text, why) in [
            ("{kyes}", "unknown name {kyes}"),
            ("{loop}", "contains itself"),
            ("{keys", "open brace"),
            ("{keys.title}", "no title"),
            ("{design.name}", "a title and a remark"),
            ("{design*2}", "no whole number"),
            ("{keys/0}", "divides by 0"),
        ] {
            let said = filled(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
