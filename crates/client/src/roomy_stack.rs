//! Room on the stack for set-up.
//!
//! Setting a communicator up takes up to 210 KiB of stack, and the thread that makes it may have less: user-level threads
//! often have 64 KiB, those of musl 128. Operations need no more than 20 KiB.

use std::mem::MaybeUninit;
use std::ops::Range;

/// What set-up may take, unoptimised as well, with the calls of the MPI in it.
const NEEDED_BYTES: usize = 1 << 20;

thread_local! {
    /// Found once, as the C library reads a file for a process's first thread.
    static OF_THREAD: Option<Range<usize>> = stack_of_thread();
}

/// Runs `work` on the caller's stack if that has room for set-up, else on one of its own, mapped until `work` returns.
pub(crate) fn with_room<T>(work: impl FnOnce() -> T) -> T {
    let here = 0_u8;
    let top = (&raw const here).addr();
    // A user-level thread's stack is none that the C library knows.
    let has_room = OF_THREAD.with(|stack| {
        stack
            .as_ref()
            .is_some_and(|stack| stack.contains(&top) && top - stack.start >= NEEDED_BYTES)
    });
    if has_room { work() } else { stacker::grow(NEEDED_BYTES, work) }
}

/// The addresses of the stack that the C library gave the calling thread, lowest first.
fn stack_of_thread() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the calling thread is alive; the attributes are written here.
    let outcome =
        unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) };
    if outcome != 0 {
        return None;
    }
    let (mut lowest, mut len_bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were written above, and nobody uses them after they are destroyed.
    let outcome = unsafe {
        let outcome =
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut len_bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        outcome
    };
    (outcome == 0).then(|| lowest.addr()..lowest.addr() + len_bytes)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::thread;

    use super::*;

    /// The C library may give a thread up to four times as much, of a thread that has ended.
    const SMALL_BYTES: usize = 64 << 10;
    const LOCAL_BYTES: usize = 400 << 10;

    #[inline(never)]
    fn take_much_stack(value: u8) -> (usize, usize) {
        let local = black_box([value; LOCAL_BYTES]);
        ((&raw const local).addr(), local.iter().map(|&byte| usize::from(byte)).sum())
    }

    fn in_thread<T: Send + 'static>(
        stack_bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let thread = thread::Builder::new().stack_size(stack_bytes).spawn(work);
        thread.expect("a thread").join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[test]
    fn a_thread_with_a_small_stack_gets_room() {
        let (_, sum) = in_thread(SMALL_BYTES, || with_room(|| take_much_stack(1)));
        assert_eq!(sum, LOCAL_BYTES);
    }

    #[test]
    fn a_thread_with_room_keeps_its_stack() {
        let is_of_thread = |stack_bytes| {
            in_thread(stack_bytes, || {
                let (address, _) = with_room(|| take_much_stack(1));
                stack_of_thread().expect("a thread of the C library").contains(&address)
            })
        };
        assert!(is_of_thread(4 * NEEDED_BYTES));
        assert!(!is_of_thread(SMALL_BYTES));
    }

    #[test]
    fn a_user_level_thread_gets_room() {
        // A stack that the C library does not know, in a thread that has room on its own.
        let (_, sum) = in_thread(4 * NEEDED_BYTES, || {
            stacker::grow(SMALL_BYTES, || with_room(|| take_much_stack(1)))
        });
        assert_eq!(sum, LOCAL_BYTES);
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let panicked = in_thread(SMALL_BYTES, || {
            catch_unwind(AssertUnwindSafe(|| with_room(|| panic!("on the other stack")))).is_err()
        });
        assert!(panicked);
    }
}
