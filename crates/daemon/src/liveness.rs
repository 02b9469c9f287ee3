//! Liveness checks of control connections.
//!
//! There are two failures. If the other host vanishes, the kernel notices by keep-alive probes and
//! by unacknowledged data, whatever the processes do meanwhile. If the other process hangs while
//! its host lives, it stops sending its message a second, and a long silence shows that. A process
//! that gets no core for a while must not be taken for failed: polling ranks on a crowded host have
//! kept a daemon from its core for 10 s, and giving up a node costs every job on it its groups.

use std::time::Duration;

use tokio::net::TcpStream;
use tributary_transport::{HostProbes, OsError};

/// Both sides send something at least this often.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A process that sends nothing for so many ticks of the other side has failed. Counted in ticks
/// where possible, because a clock also advances while the receiver itself gets no core.
pub(crate) const SILENT_TICKS_MAX: u32 = 30;

/// The same as a duration.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(SILENT_TICKS_MAX as u64);

/// Both sides always read, so data that stay unacknowledged show a dead host just as unanswered
/// probes do.
const PROBES: HostProbes = HostProbes {
    interval: Duration::from_secs(2),
    probes_max: 3,
    unacknowledged_max: Some(Duration::from_secs(8)),
};

/// Lets the kernel end the connection when the other host is gone.
///
/// # Errors
/// If the system refuses an option.
pub(crate) fn watch_host(stream: &TcpStream) -> Result<(), OsError> {
    PROBES.watch(stream)
}
