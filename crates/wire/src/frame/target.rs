//! Where a result goes.

use core::ops::Range;

use crate::EndpointId;

/// Where a result goes. Members that are not targets get a completion without data.
///
/// If the group has a multicast address, results for all members go there too. `docs/wire.md`
/// reserves a code for a target that is a multicast address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every member.
    All,
    /// One member.
    Member(EndpointId),
    /// The external receiver.
    ExternalReceiver,
    /// Every member and the external receiver.
    AllAndExternalReceiver,
    /// One member and the external receiver.
    MemberAndExternalReceiver(EndpointId),
}

impl Target {
    /// Whether every member is a target.
    #[must_use]
    pub const fn is_all(self) -> bool {
        matches!(self, Self::All | Self::AllAndExternalReceiver)
    }

    /// The one member that is a target, if there is one.
    #[must_use]
    pub const fn member(self) -> Option<EndpointId> {
        match self {
            Self::Member(member) | Self::MemberAndExternalReceiver(member) => Some(member),
            Self::All | Self::ExternalReceiver | Self::AllAndExternalReceiver => None,
        }
    }

    /// Whether the external receiver is a target.
    #[must_use]
    pub const fn has_external_receiver(self) -> bool {
        matches!(
            self,
            Self::ExternalReceiver
                | Self::AllAndExternalReceiver
                | Self::MemberAndExternalReceiver(_)
        )
    }

    /// Whether a stream's result may go there. A stream's memory belongs to the next group as soon as
    /// all members are done with it, so no external receiver may still need a result there.
    #[must_use]
    pub const fn takes_streams(self) -> bool {
        !self.has_external_receiver()
    }

    /// Whether any of these members is a target.
    #[must_use]
    pub fn is_among(self, members: &Range<EndpointId>) -> bool {
        self.is_all() || self.member().is_some_and(|member| members.contains(&member))
    }

    /// The same target, and the external receiver too.
    #[must_use]
    pub const fn with_external_receiver(self) -> Self {
        match self {
            Self::All => Self::AllAndExternalReceiver,
            Self::Member(member) => Self::MemberAndExternalReceiver(member),
            other => other,
        }
    }
}
