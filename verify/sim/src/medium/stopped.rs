//! A thread that is stopped at a named step of an operation, while others continue.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bristlecone_pm::Step;

use crate::medium::guard::guarded;

struct Stop {
    at: Step,
    came: Sender<()>,
    go_on: Receiver<()>,
}

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Records that the calling thread is at a step, and stops it if this is the chosen one.
pub(crate) fn pass(step: Step) {
    let stop = STOP.with_borrow_mut(|stop| stop.take_if(|stop| stop.at == step));
    if let Some(Stop { came, go_on, .. }) = stop {
        // If the run has failed there is no receiver any more: then the thread continues.
        let _ = came.send(());
        let _ = go_on.recv();
    }
}

/// A thread in the middle of an operation.
#[derive(Debug)]
pub struct Stopped {
    go_on: Sender<()>,
    thread: JoinHandle<Result<String, String>>,
}

impl Stopped {
    /// Begins an operation on a separate thread and returns when it has reached the step.
    ///
    /// # Errors
    ///
    /// If it ends without reaching the step.
    pub fn begin(
        at: Step,
        run: impl FnOnce() -> Result<String, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (came, comes) = channel();
        let (to_thread, go_on) = channel();
        let thread = std::thread::spawn(move || {
            STOP.set(Some(Stop { at, came, go_on }));
            let done = guarded(run);
            STOP.set(None);
            done
        });
        let stopped = Self { go_on: to_thread, thread };
        match comes.recv() {
            Ok(()) => Ok(stopped),
            Err(_) => Err(format!("it never came to {at}, but ended: {:?}", stopped.finish())),
        }
    }

    /// Lets it continue to its end.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn finish(self) -> Result<String, String> {
        let _ = self.go_on.send(());
        self.thread.join().map_err(|_| "a panic elsewhere")?
    }
}
