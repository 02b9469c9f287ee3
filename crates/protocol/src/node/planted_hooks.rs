//! Where the bugs take effect that the swarm has to find. Without the feature `planted-bugs` no hook does
//! anything.

use alloc::collections::VecDeque;

use tributary_wire::ChildIndex;
use tributary_wire::frame::Shape;

use super::outputs::Outputs;
use super::port::{PortId, Role};
use crate::Carrier;
use crate::payloads::{Payloads, Place, Source};

/// Whether this bug is planted.
macro_rules! is_planted {
    ($bug:ident) => {{
        #[cfg(feature = "planted-bugs")]
        let is_planted = crate::planted::is_planted(crate::planted::Bug::$bug);
        #[cfg(not(feature = "planted-bugs"))]
        let is_planted = false;
        is_planted
    }};
}

/// Folds a repeated contribution into the accumulator again. `folded` are the children whose contributions are
/// there; none if the slot no longer gathers.
pub(super) fn count_twice(
    (child, carrier): (ChildIndex, Carrier),
    folded: Option<u16>,
    (accumulator, shape): (Place, Shape),
    payload: &[u8],
    payloads: &mut impl Payloads,
) {
    let is_planted = match carrier {
        Carrier::Datagram => is_planted!(DoubleDatagram),
        Carrier::Link | Carrier::Multicast => is_planted!(DoubleCount),
    };
    let is_folded = folded.is_some_and(|folded| child.0 < folded);
    if is_planted && is_folded && shape.operator().is_reduction() {
        payloads.fold(accumulator, shape, Source::Frame(payload));
    }
}

/// Gives a second group a lock that another one has, or turns the order of those that wait round.
pub(super) fn spoil_lock<Lock, Waiting>(
    free: &mut Option<Lock>,
    queue: &mut VecDeque<Waiting>,
    another: impl FnOnce() -> Lock,
) {
    if is_planted!(SharedLock) && free.is_none() {
        *free = Some(another());
    }
    if is_planted!(UnfairLock) && free.is_some() {
        queue.make_contiguous().reverse();
    }
}

/// Whether the lock of a group that failed while it streamed is lost.
pub(super) fn loses_lock() -> bool {
    is_planted!(LostLock)
}

/// Whether a child that does not repeat its requests gets no reliable copy.
pub(super) fn spares_any_copy() -> bool {
    is_planted!(SparedCopy)
}

/// Whether a lost aggregator is called a lost member.
pub(super) fn calls_nodes_members() -> bool {
    is_planted!(NodeCalledMember)
}

/// Whether members are taken to have left everywhere once those below have.
pub(super) fn takes_part_for_whole() -> bool {
    is_planted!(EndToldEarly)
}

/// Forgets the children of a group that has lost its parent, so that nothing tells them.
pub(super) fn forget_children<'a>(
    ports: impl Iterator<Item = &'a mut Option<PortId>>,
    out: &mut Outputs,
) {
    if is_planted!(SilentOrphan) {
        for port in ports.filter_map(Option::take) {
            out.set_role(port, Role::Closing);
        }
    }
}
