//! The groups installed on this aggregator, and the keys of those whose frames are authenticated.

use tributary_transport::{AuthenticationKey, Frame};
use tributary_wire::control::GroupKeys;
use tributary_wire::frame::{EXTERNAL_RECEIVER, Edge};
use tributary_wire::{Epoch, GroupId};

/// The groups of one aggregator, with the keys to check their frames.
#[derive(Default)]
pub(super) struct Installed {
    /// Indexed by group id, which the manager keeps small and dense.
    places: Vec<Option<InstalledPart>>,
    count: usize,
    /// How many of them authenticate their frames.
    authenticated: usize,
}

struct InstalledPart {
    epoch: Epoch,
    keys: Option<Keys>,
}

struct Keys {
    group: AuthenticationKey,
    external_receiver: Option<AuthenticationKey>,
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
            group: AuthenticationKey::new(keys.group),
            external_receiver: keys.external_receiver.map(AuthenticationKey::new),
        });
        self.count += 1;
        self.authenticated += usize::from(keys.is_some());
        self.places[index] = Some(InstalledPart { epoch, keys });
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        let found = self.places.get_mut(group.0 as usize).and_then(Option::take);
        let Some(place) = found else { return };
        self.count -= 1;
        self.authenticated -= usize::from(place.keys.is_some());
    }

    pub(super) fn first(&self) -> Option<(GroupId, Epoch)> {
        let mut all = self.places.iter().enumerate();
        all.find_map(|(index, place)| {
            place.as_ref().map(|place| (GroupId(index as u32), place.epoch))
        })
    }

    /// The key of an edge's frames; none if they are not authenticated, or the group is not here.
    #[inline]
    pub(super) fn key(&self, edge: &Edge) -> Option<&AuthenticationKey> {
        if self.authenticated == 0 {
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

    /// Whether a group authenticates its frames.
    pub(super) fn is_authenticated(&self, group: GroupId) -> bool {
        let place = self.places.get(group.0 as usize).and_then(Option::as_ref);
        place.is_some_and(|place| place.keys.is_some())
    }

    /// Whether a frame passes authentication. Frames of a group without a key always do.
    #[inline]
    pub(super) fn admits(&self, frame: &Frame<'_>) -> bool {
        self.key(&frame.header.edge).is_none_or(|key| key.authenticates(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::frame::{Header, Message, Versions};
    use tributary_wire::{Capability, ChildIndex, FrameKey};

    const GROUP: GroupId = GroupId(2);
    const EPOCH: Epoch = Epoch(7);

    fn keys(group: u8, external_receiver: Option<u8>) -> GroupKeys {
        let key = |byte| FrameKey::from_bytes([byte; 16]);
        GroupKeys { group: key(group), external_receiver: external_receiver.map(key) }
    }

    /// Whether a join passes whose code was made with a key of this byte, or that has no code.
    fn admits(installed: &Installed, epoch: Epoch, child: ChildIndex, byte: Option<u8>) -> bool {
        let version = Versions::SPOKEN.newest;
        let capability = Capability::default();
        let edge = Edge { group: GROUP, epoch, child, capability, version };
        let header = Header { edge, message: Message::Join };
        let code = byte.map(|byte| {
            AuthenticationKey::new(FrameKey::from_bytes([byte; 16])).code(&header.encode(), &[])
        });
        installed.admits(&Frame { header, payload: &[], code })
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
        assert!(admits(&installed, Epoch(8), member, None), "this one is not authenticated");
        installed.remove(GROUP);
        assert_eq!((installed.count(), installed.authenticated, installed.first()), (0, 0, None));
    }

    #[test]
    fn an_authenticated_group_without_an_external_receiver_leaves_strangers_to_the_machine() {
        let mut installed = Installed::default();
        installed.insert(GROUP, EPOCH, Some(keys(1, None)));
        assert!(
            admits(&installed, EPOCH, EXTERNAL_RECEIVER, None),
            "there is no such place to believe in"
        );
        assert!(admits(&installed, Epoch(6), ChildIndex(0), None), "nor such a group");
    }
}
