//! See `bodies/frame.rs`.
#![no_main]

#[path = "../bodies/frame.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
