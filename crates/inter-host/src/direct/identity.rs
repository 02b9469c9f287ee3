//! The members of a communicator's direct links, and how they prove it.

use tributary_transport::AuthenticationKey;
use tributary_wire::{Capability, FrameKey, GroupId};

/// What tells one communicator's direct links from every other's, and its members from strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) group: GroupId,
    pub(crate) secret: Capability,
    /// What the links' keys are derived from; none where frames carry no codes.
    key: Option<FrameKey>,
}

impl Identity {
    /// Random bytes that an identity is made from.
    pub const BYTES: usize = 36;

    /// The identity, with a key only if frames are to be authenticated.
    pub fn from_bytes(bytes: [u8; Self::BYTES], authenticates: bool) -> Self {
        let (group, secrets) = bytes.split_at(4);
        let (secret, key) = secrets.split_at(16);
        let group = u32::from_le_bytes(group.try_into().expect("split at four"));
        let secret = secret.try_into().expect("split at sixteen");
        let key = authenticates.then(|| key.try_into().expect("sixteen are left"));
        Self {
            group: GroupId(group),
            secret: Capability::from_bytes(secret),
            key: key.map(FrameKey::from_bytes),
        }
    }

    /// The identity for the links between each host's leader number `leader`.
    pub fn of_leader(self, leader: u32) -> Self {
        Self { group: GroupId(self.group.0.wrapping_add(leader)), ..self }
    }

    /// Whether frames carry codes.
    pub fn is_authenticated(&self) -> bool {
        self.key.is_some()
    }

    /// The key of the link between two hosts, which no other link of the communicator has; none where
    /// frames carry no codes.
    pub(crate) fn link_key(&self, hosts: [u32; 2]) -> Option<AuthenticationKey> {
        self.key.map(|key| AuthenticationKey::of_direct_link(key, self.group, hosts))
    }
}
