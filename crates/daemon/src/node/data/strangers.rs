//! Keeps frames of strangers from waking this process.
//!
//! Whoever does not know a capability can send frames all the same. Some are refused here, one by one. If they go on, the
//! kernel drops them at the socket: it is told which capabilities there are. While nobody does this, nothing is told, so
//! groups come and go without a further system call.

use super::DataLoop;

/// Frames of strangers that are refused before the kernel drops them, counted anew whenever groups come or go.
const REFUSED_BEFORE_FILTER: u32 = 32;

/// What has been done against strangers.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Frames that showed no edge's capability, since groups came or went.
    refused: u32,
    /// The kernel drops what shows none of the capabilities that there were.
    are_filtered: bool,
}

impl DataLoop {
    /// A frame showed no edge's capability.
    pub(super) fn on_stranger(&mut self) {
        self.strangers.refused = self.strangers.refused.saturating_add(1);
        if self.strangers.refused != REFUSED_BEFORE_FILTER {
            return;
        }
        let Some(socket) = &mut self.datagrams else { return };
        match socket.queue_holders(self.machine.capabilities()) {
            Ok(()) => {
                tracing::info!("frames of strangers come: the kernel drops them from now on");
                self.strangers.are_filtered = true;
            }
            // Whoever has more edges than a filter can hold, and kernels without filters.
            Err(error) => tracing::info!("frames of strangers come, and have to be read: {error}"),
        }
    }

    /// A group is about to be installed, whose capabilities no filter knows.
    pub(super) fn expect_new_capabilities(&mut self) {
        self.strangers.refused = 0;
        if !self.strangers.are_filtered {
            return;
        }
        let Some(socket) = &mut self.datagrams else { return };
        match socket.queue_frames() {
            Ok(()) => self.strangers.are_filtered = false,
            // Their members get no answers by datagram, and go on over their links.
            Err(error) => tracing::error!("the kernel drops new groups' datagrams: {error}"),
        }
    }

    /// A group has gone. Its capabilities pass until strangers' frames come again.
    pub(super) fn expect_fewer_capabilities(&mut self) {
        self.strangers.refused = 0;
    }
}
