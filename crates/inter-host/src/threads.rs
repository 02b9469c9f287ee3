//! Threads of this library in the application's process.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Spawns a thread with all signals blocked: the application's handlers expect its own threads.
///
/// # Errors
/// If the system gives no thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    without_signals(|| Builder::new().name(name.to_owned()).spawn(body))
}

fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are plain data owned by this frame; the calls only fill and read them.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let spawned = spawn();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        spawned
    }
}
