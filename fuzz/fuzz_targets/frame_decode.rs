//! See `bodies/frame.rs`.
#![no_main]

#[path = "../bodies/frame.rs"]
#[allow(dead_code, reason = "what was reached is looked at by the smoke test only")]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
