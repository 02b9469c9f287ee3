//! Where hosts of a test listen.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU16, Ordering};

/// An address of this machine that nobody else has: many tests run at once, whose hosts have the same secret, and a port that a
/// host leaves is another's at once.
pub(crate) fn own_address() -> IpAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let [high, low] = (LAST.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
    // Tests of other processes may run as well.
    Ipv4Addr::new(127, 1 + (std::process::id() % 250) as u8, high, low).into()
}
