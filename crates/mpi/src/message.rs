//! One-line messages for C.

use std::ffi::{c_char, c_int};
use std::fmt::Display;

/// Room that C offers for a message.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    text: *mut c_char,
    bytes: usize,
}

impl Room {
    /// # Safety
    /// `text` is valid for writing `bytes`, or `bytes` is 0, until the room was last written.
    pub(crate) unsafe fn new(text: *mut c_char, bytes: usize) -> Self {
        Self { text, bytes }
    }

    /// Writes `problem`, cut to fit, on one line and terminated.
    pub(crate) fn write(self, problem: &dyn Display) {
        if self.bytes == 0 {
            return;
        }
        let line = problem.to_string().replace(['\n', '\r', '\0'], " ");
        let cut = line.floor_char_boundary(self.bytes - 1);
        // SAFETY: `cut` and the terminator fit in `bytes`, which are valid by the promise to `new`;
        // a fresh string does not overlap them.
        unsafe {
            self.text.copy_from_nonoverlapping(line.as_ptr().cast(), cut);
            self.text.add(cut).write(0);
        }
    }

    /// What C returns for an outcome: 0, or 1 with the message written.
    pub(crate) fn status<E: Display>(self, outcome: Result<(), E>) -> c_int {
        match outcome {
            Ok(()) => 0,
            Err(error) => {
                self.write(&error);
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn written(problem: &str, bytes: usize) -> String {
        let mut room = vec![1 as c_char; bytes + 1];
        // SAFETY: `bytes` of a longer vector.
        unsafe { Room::new(room.as_mut_ptr(), bytes) }.write(&problem);
        assert_eq!(room[bytes], 1, "nothing is written behind the room");
        // SAFETY: the vector lives, and a terminator was written.
        unsafe { CStr::from_ptr(room.as_ptr()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn messages_are_one_line_cut_at_a_character_and_terminated() {
        assert_eq!(written("rank 3\nis gone", 64), "rank 3 is gone");
        assert_eq!(written("rank", 3), "ra");
        assert_eq!(written("é", 2), "");
        assert_eq!(written("anything", 1), "");
    }
}
