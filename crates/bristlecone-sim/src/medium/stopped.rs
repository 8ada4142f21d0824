//! A thread that is stopped at a named step or before a named fence of an operation, while others go on.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bristlecone_pm::Step;
use bristlecone_pm::sync::wait;

use crate::medium::guard::guarded;

struct Stop {
    at: Step,
    came: Sender<()>,
    /// Where it stops next, if anywhere.
    go_on: Receiver<Option<Step>>,
}

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Notes that the calling thread is at a step, and stops it if this is the one.
pub(crate) fn pass(step: Step) {
    let stop = STOP.with_borrow_mut(|stop| stop.take_if(|stop| stop.at == step));
    if let Some(Stop { came, go_on, .. }) = stop {
        // If the run has failed there is no receiver any more: then the thread goes on, too.
        let _ = came.send(());
        if let Ok(Some(at)) = go_on.recv() {
            STOP.set(Some(Stop { at, came, go_on }));
        }
    }
}

/// A thread in the middle of an operation.
#[derive(Debug)]
pub struct Stopped {
    /// Locked by none: it makes a thread that stops one that others may know of.
    comes: Mutex<Receiver<()>>,
    go_on: Sender<Option<Step>>,
    thread: JoinHandle<Result<String, String>>,
}

impl Stopped {
    /// Begins an operation on a thread of its own and returns when that has come to the step.
    ///
    /// # Errors
    ///
    /// If it ends without coming there.
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
        Self { comes: Mutex::new(comes), go_on: to_thread, thread }.wait(at)
    }

    /// Lets it go on to another step.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn proceed(self, to: Step) -> Result<Self, String> {
        let _ = self.go_on.send(Some(to));
        self.wait(to)
    }

    fn wait(self, at: Step) -> Result<Self, String> {
        let came = wait::lock(&self.comes).recv();
        match came {
            Ok(()) => Ok(self),
            Err(_) => Err(format!("it never came to {at}, but ended: {:?}", self.finish())),
        }
    }

    /// Lets it go on, to its end.
    ///
    /// # Errors
    ///
    /// As the operation.
    pub fn finish(self) -> Result<String, String> {
        let _ = self.go_on.send(None);
        self.thread.join().map_err(|_| "a panic elsewhere")?
    }
}
