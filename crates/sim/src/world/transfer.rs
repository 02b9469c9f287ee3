//! Messages between ranks: eager, by rendezvous (with a remote read), in the frames of a stream, or through shared memory.

use super::ids::{RankId, TransferId};
use crate::engine::Picos;

/// A message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) from: RankId,
    pub(super) to: RankId,
    pub(super) bytes: u32,
    pub(super) protocol: MessageProtocol,
    /// Bytes not yet handed to the adapter.
    pub(super) left_bytes: u32,
    /// When the sender's core has written the first frame.
    pub(super) written_at: Picos,
    pub(super) label: Label,
}

/// What a sender says of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// What the receiver matches, with the sender.
    pub(super) tag: u32,
    /// The sender's number for the operation; nothing to a schedule.
    pub(super) node: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageProtocol {
    Eager,
    Rendezvous,
    /// In frames, of which the receiver takes each as it comes.
    Stream,
    SharedMemory,
}

/// The kind of a message's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// The rendezvous request of a long message.
    RequestToSend,
    /// The receiver is ready for it.
    ClearToSend,
    /// Data of the message. With its last byte comes the end of a frame of so many bytes.
    Data { is_last: bool, frame_bytes: Option<u32> },
}

/// All messages in progress, in reused places.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) places: Vec<Transfer>,
    pub(super) free: Vec<u32>,
}

impl Transfers {
    pub(super) fn put(&mut self, transfer: Transfer) -> TransferId {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = transfer;
            return TransferId(place);
        }
        self.places.push(transfer);
        TransferId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 messages at once"))
    }

    pub(super) fn at(&self, id: TransferId) -> Transfer {
        self.places[id.0 as usize]
    }
}
