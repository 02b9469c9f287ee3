//! Why a host connects to another, as the epoch of its `Join` tells.

use tributary_wire::Epoch;

/// In the epoch of an alarm. The other bits are the number of the loss.
const ALARM: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For the link between the two: the lower host calls, and says which of its calls this is, from 1 on; or the higher
    /// one rings to be called, and says which call it has taken last, 0 if none.
    Link { call: u32 },
    /// A tree is lost, for this time.
    Alarm { loss: Epoch },
}

impl Purpose {
    pub(super) const fn epoch(self) -> Epoch {
        match self {
            Self::Link { call } => Epoch(call & !ALARM),
            Self::Alarm { loss } => Epoch(loss.0 | ALARM),
        }
    }

    pub(super) const fn of(epoch: Epoch) -> Self {
        match epoch.0 & ALARM {
            0 => Self::Link { call: epoch.0 },
            _ => Self::Alarm { loss: Epoch(epoch.0 & !ALARM) },
        }
    }
}
