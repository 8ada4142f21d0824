//! Reads records of key and value from untrusted text: one per line, with line numbers.

mod fields;
mod lines;
mod verify;

use std::io::{BufRead, Error};

use self::fields::{Fields, Split};
pub use self::lines::{LineReader, Read};
pub use self::verify::{follows, place, verify};
use crate::dump::{self, Frame, Sum};
use crate::format::Format;

/// Positions of the fields of a record, and whether to skip the first record.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// `None`: determined by the text.
    pub format: Option<Format>,
    /// Columns of key and value, counted from 0; `None` requires exactly two columns.
    pub columns: Option<(usize, usize)>,
    pub header: bool,
}

/// Contents of a line, or of several.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// One entry.
    Record {
        /// Number of its first line, counted from 1.
        line: u64,
        /// Its two fields as text, or the error. An entry in JSON is one field, the line.
        content: Result<(&'a [u8], &'a [u8]), String>,
    },
    /// A header or trailer line of a dump.
    Frame {
        /// Number of the line.
        line: u64,
        /// Its contents, or the error.
        content: Result<Frame, String>,
    },
}

/// Reads records.
pub struct Records<R> {
    lines: LineReader<R>,
    columns: Option<(usize, usize)>,
    format: Format,
    /// Whether the text begins like a dump.
    is_dump: bool,
    sum: Sum,
    raw: Vec<u8>,
    fields: Fields,
}

impl<R: BufRead> Records<R> {
    /// Reads records from a file or standard input; reads ahead to detect a dump.
    pub fn new(from: R, layout: Layout) -> Result<Self, Error> {
        let mut lines = LineReader::new(from);
        let mut raw = Vec::new();
        let (mut is_dump, mut is_json) = (false, false);
        if lines.read(&mut raw)? != Read::End {
            is_dump = dump::frame(&raw).is_some();
            is_json = raw.starts_with(b"{\"key\":") && !raw.contains(&b'\t');
            lines.unread(std::mem::take(&mut raw), 1);
        }
        let format = layout.format.unwrap_or(if is_json { Format::Json } else { Format::Tsv });
        let Layout { columns, header, .. } = layout;
        let (sum, fields) = Default::default();
        let mut records = Self { lines, columns, format, is_dump, sum, raw, fields };
        if header && !is_dump {
            records.next()?;
        }
        Ok(records)
    }

    /// Returns whether the text begins like a dump.
    pub fn is_dump(&self) -> bool {
        self.is_dump
    }

    /// Returns the format of lines.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Sets the format of the following lines, and restarts the sum.
    pub fn begin(&mut self, format: Format) {
        (self.format, self.sum) = (format, Sum::default());
    }

    /// Returns number and checksum of the records since [`begin`](Self::begin).
    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// Returns the next record, valid or invalid; `None` at the end. An error is an error of reading.
    pub fn next(&mut self) -> Result<Option<Item<'_>>, Error> {
        self.raw.clear();
        let line = self.lines.line() + 1;
        let read = self.lines.read(&mut self.raw)?;
        if self.is_dump
            && read == Read::Whole
            && let Some(content) = dump::frame(&self.raw)
        {
            return Ok(Some(Item::Frame { line, content }));
        }
        let split = match read {
            Read::End => return Ok(None),
            Read::TooLong => Err(format!("it is longer than {} bytes", lines::LINE_BYTES_MAX)),
            Read::Whole => self.split()?,
        };
        self.sum.entries += 1;
        self.sum.add(&self.raw);
        self.sum.add(b"\n");
        let content = split.and_then(|()| self.pick());
        Ok(Some(Item::Record { line, content }))
    }

    fn split(&mut self) -> Result<Result<(), String>, Error> {
        let line = self.raw.strip_suffix(b"\r").unwrap_or(&self.raw);
        match self.format {
            Format::Keys | Format::Json => self.fields.whole(line),
            Format::Tsv => self.fields.split_tsv(line),
            Format::Csv => return self.split_csv(),
        }
        Ok(Ok(()))
    }

    /// Splits a line of CSV. A quoted field may continue in the next line. If a quote never ends, its first line
    /// is invalid, and the lines after it are parsed separately.
    fn split_csv(&mut self) -> Result<Result<(), String>, Error> {
        let first_line_bytes = self.raw.len();
        let mut more_lines = 0;
        loop {
            let record = self.raw.strip_suffix(b"\r").unwrap_or(&self.raw);
            match self.fields.split_csv(record) {
                Ok(Split::Whole) => return Ok(Ok(())),
                Err(wrong) => return Ok(Err(wrong)),
                Ok(Split::Open) => {}
            }
            let bytes = self.raw.len();
            self.raw.push(b'\n');
            let read = self.lines.read(&mut self.raw)?;
            if read == Read::End {
                self.raw.truncate(bytes);
            } else {
                more_lines += 1;
            }
            if read == Read::End || self.raw.len() > lines::LINE_BYTES_MAX {
                if more_lines > 0 {
                    self.lines.unread(self.raw[first_line_bytes + 1..].to_vec(), more_lines);
                    self.raw.truncate(first_line_bytes);
                }
                return Ok(Err("an unterminated quoted field".to_owned()));
            }
        }
    }

    /// Returns key and value among the fields.
    fn pick(&self) -> Result<(&[u8], &[u8]), String> {
        if matches!(self.format, Format::Keys | Format::Json) {
            return Ok((self.fields.get(0), &[]));
        }
        let count = self.fields.count();
        match self.columns {
            None if count == 2 => Ok((self.fields.get(0), self.fields.get(1))),
            None => {
                let columns = if count == 1 { "1 column".to_owned() } else { format!("{count} columns") };
                Err(format!("it has {columns}, not a key and a value: choose with --columns"))
            }
            Some((key, value)) if key.max(value) < count => {
                Ok((self.fields.get(key), self.fields.get(value)))
            }
            Some((key, value)) => {
                Err(format!("it has {count} columns; column {} was requested", key.max(value) + 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        text: &str,
        format: Format,
        columns: Option<(usize, usize)>,
    ) -> Vec<(u64, Option<(String, String)>)> {
        let layout = Layout { format: Some(format), columns, header: false };
        let mut records = Records::new(text.as_bytes(), layout).unwrap();
        let mut all = Vec::new();
        while let Some(Item::Record { line, content }) = records.next().unwrap() {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            all.push((line, content.ok().map(|(key, value)| (text(key), text(value)))));
        }
        all
    }

    fn pair(key: &str, value: &str) -> Option<(String, String)> {
        Some((key.to_owned(), value.to_owned()))
    }

    #[test]
    fn lines_are_divided_by_tabs() {
        let all = read("a\t1\nb\t2\r\n\nc\nd\t4\t5\ne\t", Format::Tsv, None);
        let bad = [(3, None), (4, None), (5, None)];
        assert_eq!(all[..2], [(1, pair("a", "1")), (2, pair("b", "2"))]);
        assert_eq!(all[2..5], bad);
        assert_eq!(all[5], (6, pair("e", "")));
    }

    #[test]
    fn columns_can_be_chosen() {
        let all = read("x,a,1\ny,b\n", Format::Csv, Some((1, 2)));
        assert_eq!(all, [(1, pair("a", "1")), (2, None)]);
        assert_eq!(read("x,a\n", Format::Csv, Some((1, 0))), [(1, pair("a", "x"))]);
    }

    #[test]
    fn quoted_fields_hold_commas_quotes_and_newlines() {
        let all = read("\"a,b\",\"say \"\"x\"\"\"\n\"two\nlines\",1\nc,3\n", Format::Csv, None);
        assert_eq!(all, [(1, pair("a,b", "say \"x\"")), (2, pair("two\nlines", "1")), (4, pair("c", "3"))]);
    }

    #[test]
    fn a_quote_left_open_spoils_its_own_line_only() {
        let all = read("a,1\nb,\"2\nc,3\nd,4\n", Format::Csv, None);
        assert_eq!(all, [(1, pair("a", "1")), (2, None), (3, pair("c", "3")), (4, pair("d", "4"))]);
        assert_eq!(read("a,\"", Format::Csv, None), [(1, None)]);
    }

    #[test]
    fn stray_quotes_are_refused() {
        assert_eq!(
            read("a,b\"c\nd,\"e\"f\ng,7\n", Format::Csv, None),
            [(1, None), (2, None), (3, pair("g", "7"))]
        );
    }

    #[test]
    fn whole_lines_are_keys() {
        assert_eq!(read("a\tb\nc", Format::Keys, None), [(1, pair("a\tb", "")), (2, pair("c", ""))]);
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let text = format!("a\t1\n{}\nb\t2\n", "x".repeat(lines::LINE_BYTES_MAX * 3));
        let all = read(&text, Format::Tsv, None);
        assert_eq!(all, [(1, pair("a", "1")), (2, None), (3, pair("b", "2"))]);
    }
}
