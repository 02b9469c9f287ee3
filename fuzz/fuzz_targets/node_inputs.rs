//! See `bodies/node.rs`.
#![no_main]

#[path = "../bodies/node.rs"]
#[allow(dead_code, reason = "what was reached is looked at by the smoke test only")]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
