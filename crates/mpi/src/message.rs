//! One-line messages for C. Each thread keeps the message of its last failure until C asks for it.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt::Display;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a problem for the calling thread's [`tributary_message`].
#[cold]
pub(crate) fn keep(problem: &dyn Display) {
    let line = problem.to_string().replace(['\n', '\r', '\0'], " ");
    LAST.with_borrow_mut(|last| *last = line);
}

/// What C returns for an outcome: 0, or 1 with the message kept.
pub(crate) fn status<E: Display>(outcome: Result<(), E>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            keep(&error);
            1
        }
    }
}

/// Writes the message of the calling thread's last failure, cut to fit, on one line and terminated.
///
/// # Safety
/// `text` is valid for writing `bytes` during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_message(text: *mut c_char, bytes: usize) {
    if bytes == 0 {
        return;
    }
    LAST.with_borrow(|line| {
        let cut = line.floor_char_boundary(bytes - 1);
        // SAFETY: `cut` bytes and the terminator fit in `bytes`, which this function's contract makes
        // valid for writing; the kept string does not overlap them.
        unsafe {
            text.copy_from_nonoverlapping(line.as_ptr().cast(), cut);
            text.add(cut).write(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn write_message(problem: &str, bytes: usize) -> String {
        let mut room = vec![1 as c_char; bytes + 1];
        keep(&problem);
        // SAFETY: `bytes` of a longer vector.
        unsafe { tributary_message(room.as_mut_ptr(), bytes) };
        assert_eq!(room[bytes], 1, "nothing is written past the end");
        // SAFETY: the vector lives, and a terminator was written.
        unsafe { CStr::from_ptr(room.as_ptr()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn messages_are_one_line_cut_at_a_character_and_terminated() {
        assert_eq!(write_message("rank 3\nis gone", 64), "rank 3 is gone");
        assert_eq!(write_message("rank", 3), "ra");
        assert_eq!(write_message("é", 2), "");
        assert_eq!(write_message("anything", 1), "");
    }
}
