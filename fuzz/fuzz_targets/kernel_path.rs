//! See `bodies/kernel_path.rs`.
#![no_main]

#[path = "../bodies/kernel_path.rs"]
#[allow(dead_code, reason = "only the smoke test reads what was reached")]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});
