//! Lines of bounded length, counted, some of which may be handed back.

use std::io::{BufRead, Error, ErrorKind};

/// The longest line: the longest key and value there can be, with every byte escaped.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What reading a line gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Nothing is left.
    End,
    /// A line, without its end.
    Whole,
    /// A line too long to be kept; it was passed over.
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
    /// Reads lines of `from`.
    pub fn new(from: R) -> Self {
        Self { from, back: Vec::new(), back_at: 0, line: 0 }
    }

    /// Returns how many lines were read.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Hands back `lines` whole lines, the last without its end.
    pub fn unread(&mut self, mut text: Vec<u8>, lines: u64) {
        text.push(b'\n');
        text.extend_from_slice(&self.back[self.back_at..]);
        (self.back, self.back_at) = (text, 0);
        self.line -= lines;
    }

    /// Appends the next line to `to`; of one that is too long only its beginning, which is too
    /// long, too.
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
