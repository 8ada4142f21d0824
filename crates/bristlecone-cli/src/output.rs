//! Output: text for people, JSON for programs, progress only on a terminal.

use std::io::{BufWriter, IsTerminal, Stdout, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Outcome;

/// Standard output, and its format.
pub struct Output {
    to: BufWriter<Stdout>,
    json: bool,
}

impl Output {
    /// Returns standard output, in JSON if `json` is set.
    pub fn new(json: bool) -> Self {
        Self { to: BufWriter::with_capacity(1 << 16, std::io::stdout()), json }
    }

    /// Returns whether the output is JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints one JSON value in one line.
    pub fn value(&mut self, value: &impl Serialize) -> Outcome {
        serde_json::to_writer(&mut self.to, value).map_err(std::io::Error::from)?;
        self.to.write_all(b"\n")?;
        Ok(())
    }

    /// Prints one line of text.
    pub fn line(&mut self, line: impl std::fmt::Display) -> Outcome {
        writeln!(self.to, "{line}")?;
        Ok(())
    }

    /// Prints the JSON value or the text, depending on the format.
    pub fn either(&mut self, value: &impl Serialize, text: impl std::fmt::Display) -> Outcome {
        if self.json { self.value(value) } else { self.line(text) }
    }

    /// Prints raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.to.write_all(bytes)?;
        Ok(())
    }

    /// Flushes the output. Every command must end with this, so that no output is lost silently.
    pub fn finish(&mut self) -> Outcome {
        self.to.flush()?;
        Ok(())
    }

    /// Returns a progress bar over `steps`, or a counter when their number is unknown; drawn only
    /// on a terminal.
    pub fn progress(&self, what: &'static str, steps: Option<u64>) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let (bar, template) = match steps {
            Some(steps) => (ProgressBar::new(steps), "{msg} {wide_bar} {human_pos}/{human_len} {eta}"),
            None => (ProgressBar::new_spinner(), "{msg} {spinner} {human_pos}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}

/// Returns a number in groups of digits: `12,345,678`.
pub fn grouped(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Returns a number with its noun: `1 tree`, `2 trees`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "tree", "trees"), "1 tree");
        assert_eq!(counted(0, "tree", "trees"), "0 trees");
    }
}
