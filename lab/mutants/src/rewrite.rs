//! Writes a file with all its mutants in it, each behind a check whether it is on.
//!
//! Comments mark the code of a mutant, so that a compiler error identifies the mutant: `/*<7*/ … /*7>*/`.

use std::collections::HashSet;
use std::ops::Range;

use crate::find::{File, Form, Site};

/// Returns the file with its mutants, except those in `refused`. `switch` is the path of the function that
/// returns whether a mutant is on.
pub fn rewrite(file: &File, switch: &str, refused: &HashSet<u32>) -> String {
    let mut writer = Writer { file, switch, refused, next: 0 };
    writer.within(0..file.source.len())
}

struct Writer<'a> {
    file: &'a File,
    switch: &'a str,
    refused: &'a HashSet<u32>,
    /// The first site that was not written yet.
    next: usize,
}

impl Writer<'_> {
    fn within(&mut self, range: Range<usize>) -> String {
        let file = self.file;
        let mut out = String::new();
        let mut written = range.start;
        while let Some(site) = file.sites.get(self.next).filter(|site| site.range.start < range.end) {
            self.next += 1;
            out.push_str(&file.source[written..site.range.start]);
            let inner = self.within(site.range.clone());
            out.push_str(&self.site(site, inner));
            written = site.range.end;
        }
        out.push_str(&file.source[written..range.end]);
        out
    }

    fn site(&self, site: &Site, inner: String) -> String {
        let on = |id: u32| format!("{}({id})", self.switch);
        let live = |id: u32| !self.refused.contains(&id);
        match &site.form {
            Form::Instead { statements, variants } => {
                let mut out = String::new();
                for (id, code) in variants.iter().filter(|(id, _)| live(*id)) {
                    out.push_str(&format!("if {} {{ {} }} else ", on(*id), marked(*id, code)));
                }
                match (out.is_empty(), statements) {
                    (true, _) => inner,
                    (false, true) => format!("{out}{{ {inner} }}"),
                    (false, false) => format!("({out}{{ {inner} }})"),
                }
            }
            Form::Never { id, chain } if live(*id) => {
                let inner = if *chain { inner } else { format!("({inner})") };
                marked(*id, &format!("!{} && {inner}", on(*id)))
            }
            Form::Skipped { id } if live(*id) => {
                format!("if !{} {{ {} }}", on(*id), marked(*id, &inner))
            }
            Form::Dropped { id, name } if live(*id) => {
                format!("{inner} if {} {{ {} }}", on(*id), marked(*id, &format!("drop({name});")))
            }
            Form::Never { .. } | Form::Skipped { .. } | Form::Dropped { .. } => inner,
        }
    }
}

fn marked(id: u32, code: &str) -> String {
    format!("/*<{id}*/{code}/*{id}>*/")
}

/// Code of mutants in a rewritten file, found by their marks.
#[derive(Debug)]
pub struct Marks(Vec<(u32, Range<usize>)>);

impl Marks {
    /// Finds the marks.
    pub fn of(text: &str) -> Self {
        let mut marks = Vec::new();
        for (start, _) in text.match_indices("/*<") {
            let digits: String = text[start + 3..].chars().take_while(char::is_ascii_digit).collect();
            let Ok(id) = digits.parse() else { continue };
            if let Some(length) = text[start..].find(&format!("/*{id}>*/")) {
                marks.push((id, start..start + length));
            }
        }
        Self(marks)
    }

    /// Returns the mutant whose code is in `range`: the innermost, if there are several.
    pub fn at(&self, range: &Range<usize>) -> Option<u32> {
        let around = |mark: &&(u32, Range<usize>)| mark.1.start <= range.start && range.end <= mark.1.end;
        self.0.iter().filter(around).min_by_key(|mark| mark.1.len()).map(|mark| mark.0)
    }

    /// Returns all mutants with code in `range`.
    pub fn among(&self, range: &Range<usize>) -> Vec<u32> {
        let meets = |mark: &&(u32, Range<usize>)| mark.1.start < range.end && range.start < mark.1.end;
        self.0.iter().filter(meets).map(|mark| mark.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::find::find;
    use crate::plan::{OWN, Plan};

    #[test]
    fn files_without_mutants_are_as_they_were_and_with_all_of_them_they_parse() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut mutants = Vec::new();
        for path in Plan::parse(OWN).unwrap().files(&root).unwrap() {
            let first = mutants.len() as u32;
            let source = std::fs::read_to_string(root.join(&path)).unwrap();
            let file = find(&path, source, &mut mutants).unwrap();
            let all: HashSet<u32> = (first..mutants.len() as u32).collect();
            assert_eq!(rewrite(&file, "on", &all), file.source, "{path}");
            let text = rewrite(&file, "crate::mutants::on", &HashSet::new());
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
            // Each has its mark.
            let marked: HashSet<u32> = Marks::of(&text).among(&(0..text.len())).into_iter().collect();
            assert_eq!(marked, all, "{path}");
        }
        assert!(mutants.len() > 5000, "{}", mutants.len());
    }

    #[test]
    fn the_innermost_mark_names_the_mutant() {
        let text = "/*<1*/ a /*<12*/ b /*12>*/ c /*1>*/ d";
        let marks = Marks::of(text);
        let at = |code: &str| text.find(code).map(|at| at..at + 1).unwrap();
        assert_eq!(
            [" a", "b", " c", " d"].map(|code| marks.at(&at(code))),
            [Some(1), Some(12), Some(1), None]
        );
        assert_eq!(marks.among(&(at("b").start..text.len())), [1, 12]);
    }
}
