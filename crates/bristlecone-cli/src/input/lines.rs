//! Reads lines of bounded length, counts them, and supports unreading.

use std::io::{BufRead, Error, ErrorKind};

/// The longest line: the longest possible key and value, with every byte escaped.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// End of the input.
    End,
    /// A line, without its end.
    Whole,
    /// A line that was too long; it was skipped.
    TooLong,
}

/// Reads lines that end in `\n` or at the end of the input.
pub struct LineReader<R> {
    from: R,
    back: Vec<u8>,
    back_at: usize,
    line: u64,
}

impl<R: BufRead> LineReader<R> {
    /// Reads lines from `from`.
    pub fn new(from: R) -> Self {
        Self { from, back: Vec::new(), back_at: 0, line: 0 }
    }

    /// Returns the number of lines read.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Unreads `lines` whole lines, the last without its end.
    pub fn unread(&mut self, mut text: Vec<u8>, lines: u64) {
        text.push(b'\n');
        text.extend_from_slice(&self.back[self.back_at..]);
        (self.back, self.back_at) = (text, 0);
        self.line -= lines;
    }

    /// Appends the next line to `to`; of a line that is too long, only a beginning that exceeds the
    /// limit.
    pub fn read(&mut self, to: &mut Vec<u8>) -> Result<Read, Error> {
        let start = to.len();
        let mut any = false;
        loop {
            let available = if self.back_at < self.back.len() {
                &self.back[self.back_at..]
            } else {
                match self.from.fill_buf() {
                    Ok(available) => available,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
            };
            if available.is_empty() && !any {
                return Ok(Read::End);
            }
            any = true;
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            let room = LINE_BYTES_MAX + 1 - (to.len() - start);
            to.extend_from_slice(&available[..taken.min(room)]);
            let ended = end.is_some() || available.is_empty();
            self.consume(taken + usize::from(end.is_some()));
            if ended {
                self.line += 1;
                if self.line == 1 && to.starts_with(b"\xef\xbb\xbf") {
                    to.drain(..3);
                }
                return Ok(if to.len() - start > LINE_BYTES_MAX { Read::TooLong } else { Read::Whole });
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        if self.back_at < self.back.len() {
            self.back_at += bytes;
        } else {
            self.from.consume(bytes);
        }
    }
}
