//! The driver's number for a link, and what the link is for.

use tributary_wire::{ChildIndex, GroupId};

/// The driver's number for a link: small and dense. It may be used again after
/// [`super::Node::handle_port_closed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// What a link is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Nobody has joined over it yet.
    #[default]
    Unbound,
    /// A child of a group.
    Child { group: GroupId, child: ChildIndex },
    /// The parent in a group.
    Parent { group: GroupId },
    /// The external receiver of a group.
    ExternalReceiver { group: GroupId },
    /// Its group is gone; what is queued still goes out.
    Closing,
}
