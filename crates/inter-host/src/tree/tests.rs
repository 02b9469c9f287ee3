//! Goal: a member says of a failed group what its aggregator said. Method: a link whose aggregator acts between
//! two calls of the member.

use std::os::fd::{AsFd, BorrowedFd};

use tributary_transport::{Armed, Frame, ReceiveError, SendError};
use tributary_wire::frame::{Edge, HEADER_BYTES, Header, Message, Versions};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId};

use tributary_protocol::endpoint::EndpointConfig;

use super::*;

const EDGE: Edge = Edge {
    group: GroupId(1),
    epoch: Epoch(2),
    child: ChildIndex(3),
    capability: Capability::from_bytes([4; 16]),
    version: Versions::SPOKEN.newest,
};

/// A link whose aggregator says why the group failed and goes, right after the member found nothing to
/// receive.
struct LastWords {
    unread: Option<Abort>,
    has_polled: bool,
    /// Something to watch.
    descriptor: std::fs::File,
}

impl AsFd for LastWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Link for LastWords {
    fn send(&mut self, _: &[u8; HEADER_BYTES], _: &[u8]) -> Result<Sent, SendError> {
        assert!(self.has_polled, "the member polls before it sends");
        Err(SendError::Closed)
    }

    fn flush(&mut self) -> Result<Sent, SendError> {
        Err(SendError::Closed)
    }

    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        if !std::mem::replace(&mut self.has_polled, true) {
            return Ok(None);
        }
        let abort = self.unread.take().ok_or(ReceiveError::Closed)?;
        let header = Header { edge: EDGE, message: Message::Abort(abort) };
        Ok(Some(Frame { header, payload: &[], code: None }))
    }

    fn release(&mut self) {}

    fn is_ready(&mut self) -> bool {
        true
    }

    fn arm(&mut self) -> Armed {
        Armed::Ready
    }

    fn disarm(&mut self) {}

    fn wants_write(&self) -> bool {
        false
    }

    fn payload_max_bytes(&self) -> u32 {
        1000
    }

    fn shutdown(&mut self) {
        self.unread = None;
    }
}

#[test]
fn a_node_that_told_why_and_went_is_not_blamed() {
    let abort = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(7) };
    let descriptor = std::fs::File::open("/dev/null").unwrap();
    let link = LastWords { unread: Some(abort), has_polled: false, descriptor };
    let endpoint = Endpoint::new(EndpointConfig {
        group: EDGE.group,
        epoch: EDGE.epoch,
        frame_version: EDGE.version,
        child: EDGE.child,
        capability: EDGE.capability,
        endpoint: EndpointId(0),
        osos: 1,
        payload_max_bytes: 1000,
        operations_max: 1,
        stream: None,
    });
    let mut member = TreeMember {
        endpoint,
        link: Box::new(link),
        datagrams: None,
        address: String::new(),
        host: 0,
        endpoints: Vec::new(),
        carrier: "tcp",
        round: Round::Full,
        link_due_in: 0,
        clock: Instant::now(),
        running: None,
        number: None,
        cut: None,
        retained: None,
        stream_min_bytes: None,
        is_gone: false,
        counters: None,
        has_external_receiver: false,
        short_vectors: None,
    };
    assert_eq!(member.poll(), Err(abort));
}
