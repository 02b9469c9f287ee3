//! How long a graceful close may take.

use std::thread;
use std::time::{Duration, Instant};

/// To leave this process, and after a failure to arrive.
const GRACE_TIMEOUT: Duration = Duration::from_millis(500);

/// Tries until it succeeds, for as long as a graceful close may take.
pub(crate) fn wait_for_grace(mut is_said: impl FnMut() -> bool) {
    let deadline = Instant::now() + GRACE_TIMEOUT;
    while !is_said() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}
