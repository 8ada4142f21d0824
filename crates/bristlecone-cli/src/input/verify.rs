//! Verifies that a dump is complete before it is loaded.

use std::io::BufRead;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;

use super::{LineReader, Read};
use crate::dump::{Frame, Header, Sum, frame};
use crate::format::Format;

/// Verifies the headers and trailers of a whole dump: counts, checksums and completeness. Returns the headers;
/// an empty list if the input is plain text.
pub fn verify(from: impl BufRead, path: &str) -> Outcome<Vec<Header>> {
    let mut lines = LineReader::new(from);
    let mut line = Vec::new();
    let mut headers: Vec<Header> = Vec::new();
    let mut sum = None;
    let bad = |line: u64, what: &str| {
        Failure::new(Exit::BadInput, format!("line {line}: {what}; nothing is loaded"))
    };
    loop {
        line.clear();
        let read = lines.read(&mut line).map_err(|error| Failure::io(path, &error))?;
        let number = lines.line();
        if number.is_multiple_of(1024) {
            interrupt::check("nothing is loaded")?;
        }
        let found = if read == Read::Whole { frame(&line) } else { None };
        let found = found.transpose().map_err(|wrong| bad(number, &wrong))?;
        match (read, found, &mut sum) {
            (Read::End, _, None) => return whole(headers),
            (Read::End, _, Some(_)) => return Err(cut(&headers)),
            (_, Some(Frame::Header(header)), None) => {
                follows(&headers, &header).map_err(|wrong| bad(number, &wrong))?;
                headers.push(header);
                sum = Some(Sum::default());
            }
            (_, Some(Frame::Trailer(trailer)), Some(found)) => {
                // Records of CSV may have several lines: their number is only known after reading.
                let header = headers.last().expect("entries are summed behind a header");
                if header.format == Format::Csv {
                    found.entries = trailer.entries;
                }
                if let Some(wrong) = found.differs(header, &trailer) {
                    return Err(bad(number, &wrong));
                }
                sum = None;
            }
            (_, Some(Frame::Header(_)), Some(_)) => return Err(cut(&headers)),
            (_, Some(Frame::Trailer(_)), None) => {
                return Err(bad(number, "a dump's end without its beginning"));
            }
            // Plain text is checked line by line during the load.
            (_, None, None) if headers.is_empty() => return Ok(headers),
            (_, None, None) => return Err(bad(number, "text after the end of a dump")),
            (Read::TooLong, ..) => return Err(bad(number, "it is too long")),
            (_, None, Some(sum)) => {
                sum.entries += 1;
                sum.add(&line);
                sum.add(b"\n");
            }
        }
    }
}

fn whole(headers: Vec<Header>) -> Outcome<Vec<Header>> {
    match headers.last() {
        Some(last) if last.number != last.of => Err(cut(&headers)),
        _ => Ok(headers),
    }
}

/// Returns an error if a tree cannot be the next of a dump.
pub fn follows(before: &[Header], next: &Header) -> Result<(), String> {
    let expected = before.len() as u64 + 1;
    if next.number != expected || before.iter().any(|header| header.of != next.of) {
        return Err(format!("tree {} of {} where tree {expected} was to come", next.number, next.of));
    }
    Ok(())
}

fn cut(headers: &[Header]) -> Failure {
    Failure::new(Exit::BadInput, format!("the dump ends early, {}; nothing is loaded", place(headers)))
}

/// Returns the position at which a truncated dump ends.
pub fn place(headers: &[Header]) -> String {
    headers.last().map_or_else(String::new, |last| {
        format!("in or after tree {} of {} ({:?})", last.number, last.of, last.tree)
    })
}
