//! `bristlecone shell`: runs commands on one open pool, interactively or from a script.

mod prompt;
mod session;
mod words;

use std::io::{BufRead, IsTerminal};
use std::path::Path;

use bristlecone::Pool;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::{answer, interrupt};
use clap::Args;

use self::prompt::Prompt;
use self::session::{Next, Session};
use crate::open::PoolArgs;

/// Run several commands on one open pool
///
/// Reads commands at a prompt, with history and completion, or one command per line from standard input; `help`
/// lists them. Errors do not end the shell. Ctrl-C stops a command, Ctrl-D or `exit` leaves. The exit code is
/// that of the first failed command in a script, and 0 at a prompt.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone shell trees.pool ages
  printf 'put pine 1\\nget pine\\n' | bristlecone shell trees.pool ages -e")]
pub struct Shell {
    #[command(flatten)]
    pool: PoolArgs,
    /// The current tree, until `use` selects another.
    tree: Option<String>,
    /// Exit after the first command that fails.
    #[arg(long, short = 'e')]
    exit_on_error: bool,
    /// Refuse to write, and admit other readers; follow the process that writes to the pool, if any.
    #[arg(long, conflicts_with_all = ["domain", "durability", "cursor_limit"])]
    read_only: bool,
}

impl Shell {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = if self.read_only {
            let options = self.pool.journal.folder.apply(Pool::options().read_only(true));
            self.pool.pool.open_or_follow(&options)?
        } else {
            self.pool.open()?
        };
        let folder = self.pool.journal.folder.journal.as_deref();
        let mut session = Session::new(pool, &self.pool.pool.path, folder);
        if let Some(tree) = &self.tree {
            session.choose(tree)?;
        }
        let outcome = if std::io::stdin().is_terminal() {
            self.converse(&mut session, output)
        } else {
            self.follow(&mut session, output)
        };
        session.close()?;
        outcome
    }

    /// Reads commands at a prompt.
    fn converse(&self, session: &mut Session<'_>, output: &mut Output) -> Outcome {
        let mut prompt = Prompt::new()?;
        let name = self.pool.pool.path.file_name().map(Path::new).unwrap_or(&self.pool.pool.path).display();
        while let Some(line) = prompt.read(&format!("{name}{}> ", session.place()), session)? {
            match self.execute(session, &line, output)? {
                (Next::Leave, _) => break,
                (Next::Go, Some(failure)) if self.exit_on_error => return Err(failure),
                (Next::Go, _) => {}
            }
        }
        Ok(())
    }

    /// Reads commands from a file or a pipe.
    fn follow(&self, session: &mut Session<'_>, output: &mut Output) -> Outcome {
        let mut first = None;
        for line in interrupt::stdin().lines() {
            let line = line.map_err(|error| match interrupt::asked() {
                true => Failure::interrupted("the commands before are done"),
                false => Failure::io("reading commands", &error),
            })?;
            let (next, failure) = self.execute(session, &line, output)?;
            first = first.or(failure);
            if next == Next::Leave || (self.exit_on_error && first.is_some()) {
                break;
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Runs a line and reports its error; returns the error, marked as reported.
    fn execute(
        &self,
        session: &mut Session<'_>,
        line: &str,
        output: &mut Output,
    ) -> Outcome<(Next, Option<Failure>)> {
        let done = session.execute(line, output);
        output.finish()?;
        interrupt::forget();
        match done {
            Ok(next) => Ok((next, None)),
            // Without a reader the script stops.
            Err(Failure::BrokenPipe) => Err(Failure::BrokenPipe),
            Err(failure) => {
                let exit = answer::tell("bristlecone", output.json(), &failure);
                Ok((Next::Go, exit.map(Failure::Shown)))
            }
        }
    }
}
