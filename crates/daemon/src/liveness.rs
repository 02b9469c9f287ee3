//! Liveness checks of control connections.
//!
//! There are two failures. If the other host vanishes, the kernel notices by keep-alive probes and
//! by unacknowledged data, whatever the processes do meanwhile. If the other process hangs while
//! its host lives, it stops sending its ticks, and a silence shows that.
//!
//! A manager loses patience with an aggregator soon: jobs wait for one that stands still, and go on in
//! another tree when it is given up. An aggregator is patient with its manager: nobody waits for that.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tributary_transport::{HostProbes, OsError};

/// Both sides send something at least this often.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// An aggregator that sends nothing for so many ticks of the manager has failed. Counted in ticks, because a
/// clock also advances while the manager itself gets no core. Less than the 1.4 s after which members
/// give their aggregator up (`protocol::endpoint::Patience`), so that they are not granted it again.
pub(crate) const NODE_SILENT_TICKS_MAX: u32 = 5;

/// A manager that sends nothing for so long has failed. Polling ranks on a crowded host have kept a
/// daemon from its core for 10 s.
pub(crate) const MANAGER_SILENCE_MAX: Duration = Duration::from_secs(30);

/// Both sides always read, so data that stay unacknowledged show a dead host just as unanswered
/// probes do.
const PROBES: HostProbes = HostProbes {
    interval: Duration::from_secs(2),
    probes_max: 3,
    unacknowledged_max: Some(Duration::from_secs(8)),
};

/// Ticks at this interval. Ticks that were missed are not made up for.
pub(crate) fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Lets the kernel end the connection when the other host is gone.
///
/// # Errors
/// If the system refuses an option.
pub(crate) fn watch_host(stream: &TcpStream) -> Result<(), OsError> {
    PROBES.watch(stream)
}
