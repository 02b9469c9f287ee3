//! See `bodies/node.rs`.
#![no_main]

#[path = "../bodies/node.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
