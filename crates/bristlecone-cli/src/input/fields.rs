//! The fields of one record.

/// Whether a record ends where its text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// It is complete.
    Whole,
    /// A quoted field is open and continues in the next line.
    Open,
}

/// Fields as text, without quotes, adjacent in one buffer.
#[derive(Debug, Default)]
pub struct Fields {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Fields {
    /// Returns the number of fields.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the field at `index`, which must be below the count.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    /// Makes the whole line one field.
    pub fn whole(&mut self, line: &[u8]) {
        self.clear();
        self.text.extend_from_slice(line);
        self.end_field();
    }

    /// Splits at tabs.
    pub fn split_tsv(&mut self, line: &[u8]) {
        self.clear();
        for field in line.split(|byte| *byte == b'\t') {
            self.text.extend_from_slice(field);
            self.end_field();
        }
    }

    /// Splits at commas outside quotes.
    pub fn split_csv(&mut self, record: &[u8]) -> Result<Split, String> {
        self.clear();
        let mut at = 0;
        loop {
            at = if record.get(at) == Some(&b'"') {
                match self.quoted(record, at + 1)? {
                    Some(after) => after,
                    None => return Ok(Split::Open),
                }
            } else {
                self.unquoted(record, at)?
            };
            self.end_field();
            if at >= record.len() {
                return Ok(Split::Whole);
            }
            at += 1;
        }
    }

    /// Reads a quoted field whose text begins at `at`; returns the position after its closing
    /// quote.
    fn quoted(&mut self, record: &[u8], mut at: usize) -> Result<Option<usize>, String> {
        while let Some(quote) = record[at..].iter().position(|byte| *byte == b'"') {
            self.text.extend_from_slice(&record[at..at + quote]);
            at += quote + 1;
            match record.get(at) {
                Some(b'"') => self.text.push(b'"'),
                Some(b',') | None => return Ok(Some(at)),
                Some(_) => {
                    return Err("text after a closing quote: double quotes inside a field".to_owned());
                }
            }
            at += 1;
        }
        Ok(None)
    }

    fn unquoted(&mut self, record: &[u8], at: usize) -> Result<usize, String> {
        let end = record[at..].iter().position(|byte| *byte == b',').map_or(record.len(), |comma| at + comma);
        if record[at..end].contains(&b'"') {
            return Err("a quote within an unquoted field: quote the field and double the quote".to_owned());
        }
        self.text.extend_from_slice(&record[at..end]);
        Ok(end)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn end_field(&mut self) {
        self.ends.push(self.text.len());
    }
}
