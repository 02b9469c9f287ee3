//! Which groups are installed here, and the keys of those whose frames are sealed.

use tributary_transport::{Frame, SealKey};
use tributary_wire::control::GroupKeys;
use tributary_wire::frame::{EXTERNAL_RECEIVER, Edge};
use tributary_wire::{Epoch, GroupId};

/// The groups of one node, so that all can be dropped, and every frame held against its group's key.
#[derive(Default)]
pub(super) struct Installed {
    /// Indexed by group id, which the manager keeps small and dense.
    places: Vec<Option<Place>>,
    count: usize,
    /// Those among them whose frames are sealed.
    sealed: usize,
}

struct Place {
    epoch: Epoch,
    keys: Option<Keys>,
}

struct Keys {
    group: SealKey,
    external_receiver: Option<SealKey>,
}

impl Installed {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn insert(&mut self, group: GroupId, epoch: Epoch, keys: Option<GroupKeys>) {
        self.remove(group);
        let index = group.0 as usize;
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        let keys = keys.map(|keys| Keys {
            group: SealKey::new(keys.group),
            external_receiver: keys.external_receiver.map(SealKey::new),
        });
        self.count += 1;
        self.sealed += usize::from(keys.is_some());
        self.places[index] = Some(Place { epoch, keys });
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        let found = self.places.get_mut(group.0 as usize).and_then(Option::take);
        let Some(place) = found else { return };
        self.count -= 1;
        self.sealed -= usize::from(place.keys.is_some());
    }

    pub(super) fn first(&self) -> Option<(GroupId, Epoch)> {
        let mut all = self.places.iter().enumerate();
        all.find_map(|(index, place)| {
            place.as_ref().map(|place| (GroupId(index as u32), place.epoch))
        })
    }

    /// What the frames of an edge are sealed with; none if they aren't, or its group is not here.
    #[inline]
    pub(super) fn key(&self, edge: &Edge) -> Option<&SealKey> {
        if self.sealed == 0 {
            return None;
        }
        let place = self.places.get(edge.group.0 as usize)?.as_ref()?;
        let keys = place.keys.as_ref().filter(|_| place.epoch == edge.epoch)?;
        if edge.child == EXTERNAL_RECEIVER {
            keys.external_receiver.as_ref()
        } else {
            Some(&keys.group)
        }
    }

    /// Whether a frame may be believed as far as codes go: those of a sealed group only with theirs.
    #[inline]
    pub(super) fn admits(&self, frame: &Frame<'_>) -> bool {
        self.key(&frame.header.edge).is_none_or(|key| key.has_sealed(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::frame::{Header, Message};
    use tributary_wire::{Capability, ChildIndex, FrameKey};

    const GROUP: GroupId = GroupId(2);
    const EPOCH: Epoch = Epoch(7);

    fn keys(group: u8, external_receiver: Option<u8>) -> GroupKeys {
        let key = |byte| FrameKey::from_bytes([byte; 16]);
        GroupKeys { group: key(group), external_receiver: external_receiver.map(key) }
    }

    /// Whether a join is believed that is sealed under a key of this byte, or not at all.
    fn admits(installed: &Installed, epoch: Epoch, child: ChildIndex, byte: Option<u8>) -> bool {
        let edge = Edge { group: GROUP, epoch, child, capability: Capability::default() };
        let header = Header { edge, message: Message::Join };
        let seal = byte
            .map(|byte| SealKey::new(FrameKey::from_bytes([byte; 16])).seal(&header.encode(), &[]));
        installed.admits(&Frame { header, payload: &[], seal })
    }

    #[test]
    fn members_and_external_receiver_have_keys_of_their_own() {
        let mut installed = Installed::default();
        let member = ChildIndex(0);
        assert!(admits(&installed, EPOCH, member, None), "the machine knows no such group");
        installed.insert(GROUP, EPOCH, Some(keys(1, Some(2))));
        for (child, right) in [(member, 1), (EXTERNAL_RECEIVER, 2)] {
            for (byte, expected) in [(Some(right), true), (Some(3 - right), false), (None, false)] {
                assert_eq!(admits(&installed, EPOCH, child, byte), expected, "{child:?} {byte:?}");
            }
        }
        installed.insert(GROUP, Epoch(8), None);
        assert!(admits(&installed, Epoch(8), member, None), "this one is not sealed");
        installed.remove(GROUP);
        assert_eq!((installed.count(), installed.sealed, installed.first()), (0, 0, None));
    }

    #[test]
    fn a_sealed_group_without_an_external_receiver_leaves_strangers_to_the_machine() {
        let mut installed = Installed::default();
        installed.insert(GROUP, EPOCH, Some(keys(1, None)));
        assert!(
            admits(&installed, EPOCH, EXTERNAL_RECEIVER, None),
            "there is no such place to believe in"
        );
        assert!(admits(&installed, Epoch(6), ChildIndex(0), None), "nor such a group");
    }
}
