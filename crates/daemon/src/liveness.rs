//! When the other end of a control connection counts as gone.
//!
//! Two things can happen to it. Its host vanishes: the kernels notice, by probes and by what stays
//! unacknowledged, whatever the processes do meanwhile. Or its process stands still while its host
//! goes on: both sides speak once a second, and a long silence is the sign. A process that merely
//! finds no core for a while must not be taken for either: spinning ranks of a crowded host have
//! kept a daemon from its core for 10 s, and giving it up costs every job on it its groups.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Both sides speak at least this often.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Who says nothing for so many ticks of the other stands still. Counted in ticks where that is
/// possible, because a clock also runs while the one who listens found no core.
pub(crate) const SILENT_TICKS_MAX: u32 = 30;

/// The same as a time.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(SILENT_TICKS_MAX as u64);

/// A silent connection is probed after this long, and as often again.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Unanswered probes after which the other host counts as gone.
const PROBES_MAX: u32 = 3;

/// What was sent may stay unacknowledged for as long as silence may stay unanswered. Probes are not
/// sent while something is on its way, so both limits are needed.
const UNACKNOWLEDGED_MAX_MS: u32 = 8_000;

/// Lets the kernel end the connection when the other host is gone.
///
/// # Errors
/// If the system refuses an option.
pub(crate) fn watch_host(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX_MS)
}
