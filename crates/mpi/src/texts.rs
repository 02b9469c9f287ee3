//! Texts that go to C and come back from all ranks, and the knobs that say where they are written.

use std::ffi::c_char;

use tributary_client::knobs;

/// The value of a knob, in this process's environment.
pub(crate) fn knob(knob: &'static knobs::Knob) -> String {
    knob.value(|name| std::env::var(name).ok()).value
}

/// Gives a text to C, which frees it by `tributary_report_free`.
///
/// # Safety
/// `len_bytes` is valid for writing.
pub(crate) unsafe fn give_away(text: Vec<u8>, len_bytes: *mut usize) -> *mut c_char {
    let text = text.into_boxed_slice();
    // SAFETY: this function's contract.
    unsafe { len_bytes.write(text.len()) };
    Box::into_raw(text).cast()
}

/// The texts of all ranks, one behind the other, and their lengths.
///
/// # Safety
/// `len_bytes` points to `ranks` lengths and `texts` to as many bytes as they add up to, both valid for as
/// long as the slices are used.
pub(crate) unsafe fn slices_of<'a>(
    texts: *const c_char,
    len_bytes: *const usize,
    ranks: usize,
) -> (&'a [u8], &'a [usize]) {
    // SAFETY: this function's contract asks for `ranks` lengths.
    let lengths = unsafe { std::slice::from_raw_parts(len_bytes, ranks) };
    let total_bytes = lengths.iter().sum();
    // SAFETY: this function's contract asks for texts as long as the sum of their lengths.
    let texts = unsafe { std::slice::from_raw_parts(texts.cast::<u8>(), total_bytes) };
    (texts, lengths)
}
