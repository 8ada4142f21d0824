//! Runs code under test and converts panics to issues.

use crate::medium::watch;

/// Runs code under test; a panic becomes an error, and is not printed. So does an endless run.
///
/// # Errors
///
/// Those of the code, or the reason why it did not end.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
    use std::sync::Once;

    thread_local! {
        static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
        static GUARDED: RefCell<u32> = const { RefCell::new(0) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let outer = take_hook();
        set_hook(Box::new(move |info| {
            if GUARDED.with(|depth| *depth.borrow() > 0) {
                CAUGHT.with(|caught| *caught.borrow_mut() = Some(info.to_string()));
            } else {
                outer(info);
            }
        }));
    });
    let is_outermost = GUARDED.with(|depth| std::mem::replace(&mut *depth.borrow_mut(), 1) == 0);
    if is_outermost {
        watch::begin();
    }
    let done = catch_unwind(AssertUnwindSafe(run));
    if is_outermost {
        watch::end();
        GUARDED.with(|depth| *depth.borrow_mut() = 0);
    }
    done.unwrap_or_else(|_| Err(CAUGHT.with(|caught| caught.borrow_mut().take()).unwrap_or_default()))
}
