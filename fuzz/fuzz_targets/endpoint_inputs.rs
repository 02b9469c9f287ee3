//! See `bodies/endpoint.rs`.
#![no_main]

#[path = "../bodies/endpoint.rs"]
#[allow(dead_code, reason = "only the smoke test reads what was reached")]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
