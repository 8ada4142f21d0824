//! Describes a crash.

use bristlecone_pm::LINE_BYTES;

use crate::model::image::{Kept, Possible};
use crate::model::memory::{LINE_WORDS, Line};
use crate::model::trace::{Event, Mark};
use crate::report::{Choice, Crash};

/// Maximum number of described lines of an image.
const LINES_MAX: usize = 16;

/// Describes the crash before event `at` of a trace that kept `choice` of the possible contents.
pub(crate) fn describe(
    ops: &[String],
    possible: &Possible,
    choice: &[usize],
    (trace, at): (&[Event], usize),
    depth: u32,
) -> Crash {
    let op = trace[..at].iter().rev().find_map(|event| match event {
        Event::Mark(Mark::Begin(op)) => Some(format!("operation {op}, {}", ops[*op])),
        _ => None,
    });
    let during = if depth > 1 { "recovery".to_owned() } else { op.unwrap_or_default() };
    let next = match trace.get(at).map(|event| (event, event.site())) {
        Some((_, Some(site))) => site.to_string(),
        Some((event, None)) => format!("{event:?}"),
        None => "nothing more".to_owned(),
    };
    let kept = possible.lines.iter().zip(choice).take(LINES_MAX);
    let kept = kept.map(|(kept, chosen)| describe_line(kept, *chosen)).collect();
    let chosen = possible.lines.iter().zip(choice).filter(|(_, contents)| **contents != 0);
    let choices = chosen.map(|(kept, contents)| Choice { line: kept.line, contents: *contents }).collect();
    Crash { during, event: at, next, kept, choices }
}

fn describe_line(kept: &Kept, chosen: usize) -> String {
    let [durable, last, now] = [0, kept.all, chosen].map(|at| &kept.contents[at]);
    format!(
        "line {} (byte {:#x}) keeps {} of {} (choice {chosen} of {})",
        kept.line,
        kept.line as usize * LINE_BYTES,
        changes(durable, now),
        changes(durable, last),
        kept.contents.len()
    )
}

fn changes(from: &Line, to: &Line) -> String {
    let words = (0..LINE_WORDS).filter(|word| from[*word] != to[*word]);
    let words: Vec<_> = words.map(|word| format!("[{word}] {:#x} -> {:#x}", from[word], to[word])).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
