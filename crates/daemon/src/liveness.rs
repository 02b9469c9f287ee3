//! When the other end of a control connection counts as gone.
//!
//! Two things can happen to it. Its host vanishes: the kernels notice, by probes and by what stays
//! unacknowledged, whatever the processes do meanwhile. Or its process stands still while its host
//! goes on: both sides speak once a second, and a long silence is the sign. A process that merely
//! finds no core for a while must not be taken for either: spinning ranks of a crowded host have
//! kept a daemon from its core for 10 s, and giving it up costs every job on it its groups.

use std::time::Duration;

use tokio::net::TcpStream;
use tributary_transport::{HostProbes, OsError};

/// Both sides speak at least this often.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Who says nothing for so many ticks of the other stands still. Counted in ticks where that is
/// possible, because a clock also runs while the one who listens found no core.
pub(crate) const SILENT_TICKS_MAX: u32 = 30;

/// The same as a time.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(SILENT_TICKS_MAX as u64);

/// Both sides read at all times, so what stays unacknowledged as long as probes may stay unanswered
/// tells the same.
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
