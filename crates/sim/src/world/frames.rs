//! Frames in the network: what the packets of tree operations carry.

use tributary_wire::frame::Message;

use super::payload::Data;

/// The number of a frame, reused after its last packet has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameId(u32);

/// What a packet says, and its payload. Its edge is that of the link's end.
#[derive(Clone, Debug)]
pub(super) struct Frame<P> {
    pub(super) message: Message,
    pub(super) piece: P,
}

/// All frames in the network, in reused places.
///
/// Packets that say the same thing, as the requests and results of one segment do, share a frame. So their
/// content stays in cache, however many packets there are.
pub(super) struct Frames<D: Data> {
    places: Vec<CarriedFrame<D::Piece>>,
    free: Vec<u32>,
    /// The frame that was added last.
    newest: Option<FrameId>,
}

struct CarriedFrame<P> {
    frame: Frame<P>,
    /// Packets that carry it.
    packets: u32,
}

impl<D: Data> Default for Frames<D> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), newest: None }
    }
}

impl<D: Data> Frames<D> {
    /// The frame of one more packet.
    pub(super) fn add(&mut self, message: Message, piece: D::Piece) -> FrameId {
        if let Some(newest) = self.newest {
            let place = &mut self.places[newest.0 as usize];
            let is_same = place.frame.message == message && D::is_same(&place.frame.piece, &piece);
            if is_same && place.packets > 0 {
                place.packets += 1;
                return newest;
            }
        }
        let place = CarriedFrame { frame: Frame { message, piece }, packets: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.places[id as usize] = place;
                FrameId(id)
            }
            None => {
                self.places.push(place);
                let last = self.places.len() - 1;
                FrameId(u32::try_from(last).expect("fewer than 2^32 frames at once"))
            }
        };
        self.newest = Some(id);
        id
    }

    /// One more packet carries a frame.
    pub(super) fn share(&mut self, id: FrameId) -> FrameId {
        self.share_among(id, 1);
        id
    }

    /// So many more packets carry a frame.
    pub(super) fn share_among(&mut self, id: FrameId, packets: u32) {
        self.places[id.0 as usize].packets += packets;
    }

    /// The content of a packet that has arrived.
    pub(super) fn take(&mut self, id: FrameId) -> Frame<D::Piece> {
        let place = &mut self.places[id.0 as usize];
        place.packets -= 1;
        if place.packets == 0 {
            self.free.push(id.0);
        }
        place.frame.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::RealPayload;
    use std::rc::Rc;

    #[test]
    fn equal_frames_are_kept_once_and_until_their_last_packet() {
        let mut frames = Frames::<RealPayload>::default();
        let payload: Rc<[u8]> = Rc::new([7]);
        let one = frames.add(Message::Join, payload.clone());
        let other = frames.add(Message::Join, payload.clone());
        let third = frames.share(one);
        assert_eq!((one.0, other.0, third.0, frames.places.len()), (0, 0, 0, 1));
        let equal_elsewhere = frames.add(Message::Join, Rc::new([7]));
        assert_eq!(equal_elsewhere.0, 1, "nobody compares payloads");
        for id in [one, other, third] {
            assert_eq!(frames.take(id).message, Message::Join);
        }
        assert_eq!(frames.add(Message::Leave, payload.clone()).0, 0, "the place is used again");
        assert_eq!(frames.take(equal_elsewhere).message, Message::Join);
        assert_eq!(frames.add(Message::Join, Rc::new([7])).0, 1);
    }
}
