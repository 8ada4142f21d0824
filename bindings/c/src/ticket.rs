//! Tickets: whether writes that did not wait are durable.

use std::ffi::{c_int, c_void};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use bristlecone_rs::{Error, Ticket};

use crate::argument::give;
use crate::entry::{close, open};
use crate::handle::enter;
use crate::object::InPool;
use crate::pool::PoolHandle;
use crate::status::{Failure, call};

/// Whether writes that did not wait are durable, for any number of threads. It keeps its pool open. Closing it changes
/// nothing: the writes become durable with the next sync.
pub struct TicketHandle(());

/// The object of a ticket's handle.
pub type OpenTicket = InPool<Ticket>;

/// A function that writes. Returns `BRISTLECONE_OK`, or any other number to end the call with it.
pub type Run = Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>;

/// Is called once, from any thread. It must not block.
pub type Notify = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Calls a function whose writes, in this thread, do not wait for the disk; opens a ticket that tells when they are
/// durable. In a pool of another domain than `BRISTLECONE_DOMAIN_JOURNAL` they are durable when they return, and so is the
/// ticket.
///
/// A power failure before leaves the first writes, up to any of them. A kill of the process undoes none. If the function
/// returns another number than `BRISTLECONE_OK`, so does this, once its writes are acknowledged as others are; then, and
/// after `BRISTLECONE_DURABILITY_LOST`, there is no ticket, and `*ticket` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_with_ticket(
    pool: *const PoolHandle,
    run: Run,
    context: *mut c_void,
    ticket: *mut *mut TicketHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, ticket, |inside| {
            let run = run.ok_or_else(|| Failure::usage("the function is null"))?;
            let open = inside.get()?;
            let mut returned = 0;
            let called = open.pool.with_ticket(|| {
                returned = run(context);
                if returned == 0 { Ok(()) } else { Err(Error::invalid("the function has failed")) }
            });
            match called {
                Ok(((), begun)) => Ok(open.holding(begun)),
                // Its writes are not known to be durable, which tells more.
                Err(error) if returned == 0 || matches!(error, Error::DurabilityLost) => Err(error.into()),
                Err(_) => Err(Failure::Said(returned, format!("the function has returned {returned}"))),
            }
        })
    }
}

/// Writes whether the writes of a ticket are durable, 0 or 1, without waiting.
///
/// Returns `BRISTLECONE_DURABILITY_LOST` if they can no longer become durable: open the pool again to learn what is. After an
/// error `*durable` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_ticket_is_durable(
    ticket: *const TicketHandle,
    durable: *mut c_int,
) -> c_int {
    call(|| {
        let inside = enter(ticket)?;
        // SAFETY: as the header says.
        unsafe { give(durable, inside.get()?.begun.is_durable()?.into()) };
        Ok(())
    })
}

/// Waits until the writes of a ticket are durable.
///
/// Returns `BRISTLECONE_DURABILITY_LOST` as `bristlecone_ticket_is_durable` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_ticket_wait(ticket: *const TicketHandle) -> c_int {
    call(|| Ok(enter(ticket)?.get()?.begun.wait()?))
}

/// A call that is due once.
struct Due {
    notify: unsafe extern "C" fn(*mut c_void),
    context: *mut c_void,
    is_done: AtomicBool,
}

// SAFETY: the header says that the function is called from any thread, with this pointer.
unsafe impl Send for Due {}
// SAFETY: as above.
unsafe impl Sync for Due {}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        if !self.is_done.swap(true, Relaxed) {
            // SAFETY: as the header says.
            unsafe { (self.notify)(self.context) };
        }
    }
}

/// Has a function called once the writes of a ticket are durable, or can no longer become so: `bristlecone_ticket_is_durable`
/// then tells which. It is called before this returns, or later from a thread of the pool, also if the ticket is closed by
/// then; not at all if the process ends before, or after an error. A pool that is left without being closed may not call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_ticket_notify(
    ticket: *const TicketHandle,
    notify: Notify,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let notify = notify.ok_or_else(|| Failure::usage("the function is null"))?;
        let mut ticket = enter(ticket)?.get()?.begun.clone();
        let due = Arc::new(Due { notify, context, is_done: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&due));
        match Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(()),
            Poll::Ready(ended) => {
                ended?;
                due.wake();
                Ok(())
            }
        }
    })
}

/// Closes a ticket. After an error it stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_ticket_close(ticket: *mut TicketHandle) -> c_int {
    close(ticket)
}
