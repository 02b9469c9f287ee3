//! Keeps frames of unknown senders from waking this process.
//!
//! A sender that knows no capability can send frames all the same. Some are refused here, one by one. If they go on,
//! the kernel drops them at the socket: it is told which capabilities there are. While no such frames come, nothing is
//! told, so groups come and go without a further system call.

use tributary_protocol::node::Node;
use tributary_transport::DatagramSocket;

/// Frames of unknown senders that are refused before the kernel drops them, counted anew whenever groups come or go.
const REFUSED_BEFORE_FILTER: u32 = 32;

/// What has been done against unknown senders.
#[derive(Debug, Default)]
pub(super) struct UnknownSenders {
    /// Frames that showed no edge's capability, since groups came or went.
    refused: u32,
    /// The kernel drops what shows none of the capabilities that there were.
    are_filtered: bool,
}

impl UnknownSenders {
    /// Counts a frame that showed no edge's capability.
    pub(super) fn count_refused(&mut self, socket: Option<&mut DatagramSocket>, machine: &Node) {
        self.refused = self.refused.saturating_add(1);
        if self.refused != REFUSED_BEFORE_FILTER {
            return;
        }
        let Some(socket) = socket else { return };
        match socket.queue_holders(machine.capabilities()) {
            Ok(()) => {
                tracing::info!("frames of unknown senders come: the kernel drops them from now on");
                self.are_filtered = true;
            }
            // There are more edges than a filter can hold, or the kernel has no filters.
            Err(error) => {
                tracing::info!("frames of unknown senders come, and have to be read: {error}");
            }
        }
    }

    /// A group is about to be installed, whose capabilities no filter knows.
    pub(super) fn expect_new_capabilities(&mut self, socket: Option<&mut DatagramSocket>) {
        self.refused = 0;
        if !self.are_filtered {
            return;
        }
        let Some(socket) = socket else { return };
        match socket.queue_frames() {
            Ok(()) => self.are_filtered = false,
            // Their members get no answers by datagram, and go on over their links.
            Err(error) => tracing::error!("the kernel drops new groups' datagrams: {error}"),
        }
    }

    /// A group has gone. Its capabilities pass until frames of unknown senders come again.
    pub(super) fn expect_fewer_capabilities(&mut self) {
        self.refused = 0;
    }
}
