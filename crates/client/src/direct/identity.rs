//! Who belongs to a communicator's direct links.

use tributary_wire::{Capability, GroupId};

/// What tells one communicator's direct links from every other's, and its members from strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) group: GroupId,
    pub(super) secret: Capability,
}

impl Identity {
    /// Random bytes that an identity is made from.
    pub(crate) const BYTES: usize = 20;

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (group, secret) = bytes.split_at(4);
        let group = u32::from_le_bytes(group.try_into().expect("split at four"));
        let secret = secret.try_into().expect("sixteen are left");
        Self { group: GroupId(group), secret: Capability::from_bytes(secret) }
    }

    /// The identity for the links between each host's leader number `leader`.
    pub(crate) fn of_leader(self, leader: u32) -> Self {
        Self { group: GroupId(self.group.0.wrapping_add(leader)), ..self }
    }
}
