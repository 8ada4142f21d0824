//! The prompt: history and completion.

use std::path::PathBuf;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::session::{Session, commands};
use super::words;

/// Maximum number of lines of the history.
const HISTORY_LINES: usize = 1000;

/// A line editor on the terminal.
pub struct Prompt {
    editor: Editor<Candidates, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Prompt {
    /// Prepares the terminal, and loads the history of earlier sessions.
    pub fn new() -> Outcome<Self> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .auto_add_history(true)
            .max_history_size(HISTORY_LINES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| failed(&error))?
            .build();
        let mut editor = Editor::with_config(config).map_err(|error| failed(&error))?;
        let commands = commands();
        editor.set_helper(Some(Candidates { commands, trees: Vec::new(), files: FilenameCompleter::new() }));
        let history = history_file();
        if let Some(file) = &history {
            // There is no file before the first session.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// Reads a line; `None` when the user leaves.
    pub fn read(&mut self, prompt: &str, session: &Session<'_>) -> Outcome<Option<String>> {
        if let Some(candidates) = self.editor.helper_mut() {
            candidates.trees = session.names();
        }
        interrupt::at_prompt(|| {
            loop {
                return match self.editor.readline(prompt) {
                    Ok(line) => Ok(Some(line)),
                    Err(ReadlineError::Eof) => Ok(None),
                    // Ctrl-C discards the typed line. Other signals end the process.
                    Err(ReadlineError::Interrupted) => continue,
                    Err(error) => Err(failed(&error)),
                };
            }
        })
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some(file) = &self.history {
            // A failure to save the history is ignored.
            let _ = self.editor.append_history(file);
        }
    }
}

fn failed(error: &ReadlineError) -> Failure {
    Failure::new(Exit::Failed, format!("reading from the terminal: {error}"))
}

/// Returns the path of the history, in an existing folder.
fn history_file() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).and_then(absolute);
    let home = || std::env::var_os("HOME").map(PathBuf::from).and_then(absolute);
    let folder = state.or_else(|| home().map(|home| home.join(".local/state")))?.join("bristlecone");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Candidates of the tab key: commands, their options, trees, files.
struct Candidates {
    commands: clap::Command,
    trees: Vec<String>,
    files: FilenameCompleter,
}

impl Candidates {
    fn words(&self, before: &str, word: &str) -> Vec<String> {
        let Ok(before) = words::split(before) else { return Vec::new() };
        let commands = || self.commands.get_subcommands().map(|command| command.get_name().to_owned());
        let all: Vec<String> = match before.first().map(String::as_str) {
            None | Some("help") => commands().collect(),
            Some(name) if word.starts_with('-') => self.options(name),
            Some("use" | "drop" | "rename" | "clear" | "info" | "check" | "dump" | "load") => {
                self.trees.clone()
            }
            Some(_) => Vec::new(),
        };
        let mut fitting: Vec<String> = all.into_iter().filter(|name| name.starts_with(word)).collect();
        fitting.sort();
        fitting
    }

    fn options(&self, command: &str) -> Vec<String> {
        let command = self.commands.find_subcommand(command);
        let options = command.into_iter().flat_map(clap::Command::get_arguments);
        options.filter_map(clap::Arg::get_long).map(|name| format!("--{name}")).collect()
    }
}

impl Completer for Candidates {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let start = words::last(&line[..at]);
        let (before, word) = line[..at].split_at(start);
        let fitting = self.words(before, word);
        if fitting.is_empty() && before.trim_start().starts_with(['l', 'd', 'c']) {
            return self.files.complete(line, at, context);
        }
        // A complete word is followed by a space.
        let pair = |word: String| Pair { display: word.clone(), replacement: word + " " };
        Ok((start, fitting.into_iter().map(pair).collect()))
    }
}

impl Hinter for Candidates {
    type Hint = String;
}
impl Highlighter for Candidates {}
impl Validator for Candidates {}
impl Helper for Candidates {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tab_key_offers_what_may_come() {
        let candidates = Candidates {
            commands: commands(),
            trees: vec!["oak".to_owned(), "olive".to_owned(), "pine".to_owned()],
            files: FilenameCompleter::new(),
        };
        assert_eq!(candidates.words("", "sc"), ["scan"]);
        assert!(candidates.words("", "").len() > 12);
        assert_eq!(candidates.words("use ", "o"), ["oak", "olive"]);
        assert_eq!(candidates.words("drop ", ""), ["oak", "olive", "pine"]);
        assert_eq!(candidates.words("scan ", "--re"), ["--reverse"]);
        assert_eq!(candidates.words("help ", "du"), ["dump"]);
        assert_eq!(candidates.words("get ", "o"), [""; 0]);
        assert_eq!(candidates.words("get 'a ", "o"), [""; 0]);
    }
}
