//! What every link does, whatever carries it.

use std::os::fd::AsFd;
use std::time::Instant;

use tributary_wire::frame::{HEADER_BYTES, Header, MAGIC};

use crate::{AcceptError, ReceiveError, Seal, SendError};

/// What became of a frame that was offered to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The link has it; the caller's buffers are free. (Of [`Link::flush`]: nothing is left.)
    Taken,
    /// No room: nothing was taken, offer it again later. (Of [`Link::flush`]: some is left.)
    Full,
}

/// Whether a thread may sleep on a link's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// It may: whatever comes will make the descriptor readable (or writable, where
    /// [`Link::wants_write`] says so).
    Asleep,
    /// It must not: there is something to do already. The link has been disarmed.
    Ready,
}

/// A frame that arrived, its payload still where the link received it.
///
/// A peer on shared memory that breaks the protocol can change the payload while it is being read.
/// Any bytes are a valid payload, so this can spoil a result, never memory safety, as long as no
/// decision that memory safety rests on is taken from payload bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The header, checked. Its own copy, which no peer can change.
    pub header: Header,
    /// As many bytes as the header announces.
    pub payload: &'a [u8],
    /// The code that came behind the payload. Whoever knows the key checks it before he believes
    /// anything of the rest, unless the link does ([`TcpLink::protect`](crate::TcpLink::protect)).
    pub seal: Option<Seal>,
}

/// One end of a point-to-point, bidirectional, ordered, reliable carrier of frames.
///
/// Its [`AsFd`] descriptor is what to sleep on, in this order:
///
/// 1. [`receive`](Link::receive) until it returns `None`;
/// 2. [`arm`](Link::arm); on [`Armed::Ready`] go back to 1;
/// 3. sleep until the descriptor is readable, or writable if [`wants_write`](Link::wants_write);
///    edge-triggered waiting is enough;
/// 4. [`disarm`](Link::disarm), [`flush`](Link::flush), offer again what was `Full`, go to 1.
///
/// A thread that only polls needs none of this. A link may wake its owner for nothing; it never
/// leaves it asleep with a frame to receive, with room after `Full`, or with a peer that is gone.
pub trait Link: AsFd + Send {
    /// Offers one frame. `header` must announce exactly `payload`.
    ///
    /// # Errors
    /// If the frame isn't one this link carries (the caller is at fault, the link lives on), or the
    /// link has failed.
    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError>;

    /// Pushes on what the link has taken and not yet handed to its carrier.
    ///
    /// # Errors
    /// If the link has failed.
    fn flush(&mut self) -> Result<Sent, SendError>;

    /// The next frame, or `None` if none has arrived whole. Releases the frame before it.
    ///
    /// # Errors
    /// If the peer sent what is no frame, or is gone; everything it sent before has been returned
    /// by then. The same error is returned from then on.
    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError>;

    /// Gives the room of the last received frame back to the peer, now rather than at the next
    /// call. Worth calling before work that takes long.
    fn release(&mut self);

    /// Whether [`receive`](Link::receive) has a frame or an error to return, or room has appeared
    /// since `send` last said `Full` (reported once). Also does what [`flush`](Link::flush) does.
    fn is_ready(&mut self) -> bool;

    /// Prepares to sleep on the descriptor.
    fn arm(&mut self) -> Armed;

    /// Ends what [`arm`](Link::arm) began, and takes the wake-ups off the descriptor.
    fn disarm(&mut self);

    /// Whether the descriptor is to be watched for writability too.
    fn wants_write(&self) -> bool;

    /// Longest payload this link carries.
    fn payload_max_bytes(&self) -> u32;

    /// Ends the link in both directions at once; what the peer hasn't read may be lost. Dropping
    /// the link closes it in the gentle way: the peer still receives all that was taken and flushed.
    fn shutdown(&mut self);
}

/// A link through which a test can break the rules.
pub trait Inject: Link {
    /// Puts `bytes` on the carrier as they are: whole frames, parts of frames, or garbage. What is
    /// less than a whole frame is what a peer leaves that dies while it sends.
    ///
    /// # Errors
    /// If the link has failed. Takes all of `bytes` or nothing.
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError>;
}

/// Where links come in.
///
/// Its descriptor becomes readable when [`accept`](Listener::accept) may have something.
pub trait Listener: AsFd + Send {
    /// What it makes.
    type Link: Link + 'static;

    /// The next link, or `None` if there is none for now. Never waits for a connector: one that is
    /// slow in saying what it is stays half-open, in bounded number, until its deadline.
    ///
    /// # Errors
    /// If a connector was turned away, or the system is short of something. The listener lives on;
    /// call again after a refusal, and after a pause if the system is at fault.
    fn accept(&mut self, now: Instant) -> Result<Option<Self::Link>, AcceptError>;

    /// When [`accept`](Listener::accept) wants to be called even if nothing happens.
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

/// Holds what a caller wants to send against the link's limit and against itself. A length that
/// isn't the announced one would put every later frame out of step.
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
    use tributary_wire::frame::{Edge, Message, Part, RetransmitState, Shape, Target};
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
        };
        let header = Header { edge, message: Message::Request(part) }.encode();
        assert_eq!(announced_bytes(&header), 0x01_02_03);
    }
}
