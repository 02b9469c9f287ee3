//! See `bodies/endpoint.rs`.
#![no_main]

#[path = "../bodies/endpoint.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
