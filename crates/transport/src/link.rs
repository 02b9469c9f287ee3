//! The interface of every link: shared memory, TCP, or the fault-injecting wrapper.

use std::os::fd::AsFd;
use std::time::Instant;

use tributary_wire::frame::{HEADER_BYTES, Header, MAGIC};

use crate::{AcceptError, AuthenticationCode, AuthenticationKey, ReceiveError, SendError};

/// What became of a frame that was offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The link has the frame, and the caller may reuse its buffers. From [`Link::flush`]: nothing
    /// is left to push on.
    Taken,
    /// There was no room; offer the frame again later. From [`Link::flush`]: some is left.
    Full,
}

/// Whether a thread may sleep on a link's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// It may: the next event makes the descriptor readable (or writable, where
    /// [`Link::wants_write`] says so).
    Asleep,
    /// It must not: the link has something to do already, and has been disarmed.
    Ready,
}

/// A frame that arrived. The payload is still where the link received it.
///
/// A peer on shared memory that breaks the protocol can change the payload while it is being read.
/// Any bytes are a valid payload, so this can spoil a result. It cannot violate memory safety as
/// long as memory safety does not depend on payload bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The checked header: a private copy that no peer can change.
    pub header: Header,
    /// As many bytes as the header announces.
    pub payload: &'a [u8],
    /// The code that came behind the payload. A link that authenticates
    /// ([`TcpLink::authenticate`](crate::TcpLink::authenticate)) has checked it; otherwise the
    /// owner of the key must, before it uses any other field.
    pub code: Option<AuthenticationCode>,
}

impl AuthenticationKey {
    /// Whether `frame` carries the code that this key makes for it.
    #[must_use]
    pub fn authenticates(&self, frame: &Frame<'_>) -> bool {
        // A header has one encoding only, so this is what arrived.
        frame.code.is_some_and(|code| self.code(&frame.header.encode(), frame.payload) == code)
    }
}

/// One end of a point-to-point, bidirectional, ordered, reliable channel for frames.
///
/// To sleep until the link has something, use its [`AsFd`] descriptor in this order:
///
/// 1. [`receive`](Link::receive) until it returns `None`;
/// 2. [`arm`](Link::arm); on [`Armed::Ready`] go back to 1;
/// 3. sleep until the descriptor is readable, or writable if [`wants_write`](Link::wants_write);
///    edge-triggered waiting is enough;
/// 4. [`disarm`](Link::disarm), [`flush`](Link::flush), offer again what was `Full`, go to 1.
///
/// A thread that only polls needs none of this. Spurious wake-ups happen. A link never leaves its
/// owner asleep with a frame to receive, with room after `Full`, or with a peer that is gone.
pub trait Link: AsFd + Send {
    /// Offers one frame. `header` must announce exactly `payload`.
    ///
    /// # Errors
    /// If the frame isn't one this link carries (the caller is at fault, the link lives on), or the
    /// link has failed.
    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError>;

    /// Hands frames that the link has taken to the kernel or the ring.
    ///
    /// # Errors
    /// If the link has failed.
    fn flush(&mut self) -> Result<Sent, SendError>;

    /// The next frame, or `None` if none has arrived whole. Releases the frame before it.
    ///
    /// # Errors
    /// If the peer sent something that is no frame, or is gone. Every frame it sent before has been
    /// returned by then. All later calls return the same error.
    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError>;

    /// Gives the room of the last received frame back to the peer now, not at the next call. Useful
    /// before work that takes long.
    fn release(&mut self);

    /// Whether [`receive`](Link::receive) has a frame or an error to return, or room has appeared
    /// since `send` last said `Full` (reported once). Also does what [`flush`](Link::flush) does.
    fn is_ready(&mut self) -> bool;

    /// Prepares to sleep on the descriptor.
    fn arm(&mut self) -> Armed;

    /// Undoes [`arm`](Link::arm), and consumes the wake-ups on the descriptor.
    fn disarm(&mut self);

    /// Whether the descriptor is to be watched for writability too.
    fn wants_write(&self) -> bool;

    /// Longest payload this link carries.
    fn payload_max_bytes(&self) -> u32;

    /// Whether the other end can still read all that this one has taken, if this one closes now. What a network carries may be
    /// lost on the way, and sent again only while this end is open: unread input makes the kernel reset a connection that is
    /// closed, and forget what the other end lacks.
    fn has_delivered(&self) -> bool {
        true
    }

    /// Ends the link in both directions at once; frames that the peer has not read may be lost.
    /// Dropping the link closes it gracefully: the peer still receives all that was taken and
    /// flushed.
    fn shutdown(&mut self);
}

/// A link through which a test can break the rules.
pub trait Inject: Link {
    /// Sends `bytes` as they are: whole frames, parts of frames, or garbage. A part of a frame
    /// looks like the rest of a peer that died while it sent. Takes all of `bytes` or nothing.
    ///
    /// # Errors
    /// If the link has failed.
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError>;
}

/// Accepts links.
///
/// Its descriptor becomes readable when [`accept`](Listener::accept) may have something.
pub trait Listener: AsFd + Send {
    /// The links that it accepts.
    type Link: Link + 'static;

    /// The next link, or `None` if there is none for now. Never waits for a connector: a slow one
    /// stays half-open until its deadline, and the number of half-open connectors is bounded.
    ///
    /// # Errors
    /// If a connector was refused, or the system lacks a resource. The listener lives on; call again
    /// after a refusal, and after a pause if the system is at fault.
    fn accept(&mut self, now: Instant) -> Result<Option<Self::Link>, AcceptError>;

    /// When to call [`accept`](Listener::accept) even if nothing happens.
    fn deadline(&self) -> Option<Instant>;
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError> {
        (**self).send(header, payload)
    }

    fn flush(&mut self) -> Result<Sent, SendError> {
        (**self).flush()
    }

    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        (**self).receive()
    }

    fn release(&mut self) {
        (**self).release();
    }

    fn is_ready(&mut self) -> bool {
        (**self).is_ready()
    }

    fn arm(&mut self) -> Armed {
        (**self).arm()
    }

    fn disarm(&mut self) {
        (**self).disarm();
    }

    fn wants_write(&self) -> bool {
        (**self).wants_write()
    }

    fn payload_max_bytes(&self) -> u32 {
        (**self).payload_max_bytes()
    }

    fn shutdown(&mut self) {
        (**self).shutdown();
    }
}

impl<L: Inject + ?Sized> Inject for Box<L> {
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError> {
        (**self).inject(bytes)
    }
}

/// Checks a frame that a caller sends: its length against the link's limit, and its header against
/// its payload. A wrong length would make every later frame of the stream unreadable.
pub(crate) fn check_announced(
    header: &[u8; HEADER_BYTES],
    payload: &[u8],
    max_bytes: u32,
) -> Result<(), SendError> {
    let payload_bytes = payload.len();
    if payload_bytes > max_bytes as usize {
        return Err(SendError::TooLong { payload_bytes, max_bytes });
    }
    if header[..4] != MAGIC || announced_bytes(header) != payload_bytes {
        return Err(SendError::HeaderMismatch { payload_bytes });
    }
    Ok(())
}

/// The payload length a header announces, unchecked.
fn announced_bytes(header: &[u8; HEADER_BYTES]) -> usize {
    u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::frame::{Edge, Message, Part, RetransmitState, Shape, Target, Versions};
    use tributary_wire::{
        Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, SegmentIndex,
        Sequence,
    };

    #[test]
    fn announced_length_is_where_the_wire_crate_puts_it() {
        let part = Part {
            operation: OperationNumber(1),
            segment: SegmentIndex(2),
            sequence: Sequence(3),
            shape: Shape::new(Operator::Sum, Datatype::U8, 0x01_02_03).unwrap(),
            target: Target::All,
            has_data: true,
            retransmit: RetransmitState::default(),
        };
        let edge = Edge {
            group: GroupId(4),
            epoch: Epoch(5),
            child: ChildIndex(6),
            capability: Capability::from_bytes([7; 16]),
            version: Versions::SPOKEN.newest,
        };
        let header = Header { edge, message: Message::Request(part) }.encode();
        assert_eq!(announced_bytes(&header), 0x01_02_03);
    }
}
