//! A call as an operation of the tree.

use tributary_algorithms::CollectiveKind;
use tributary_protocol::endpoint::OperationSpec;
use tributary_sim::world::{NoPayload, World};
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, Operator};
use tributary_workload::Call;

use super::parts::{Parts, Place};

/// Whether the tree has such an operation. The others go by hosts' algorithms in every design.
pub(super) fn has(kind: CollectiveKind) -> bool {
    matches!(
        kind,
        CollectiveKind::Allreduce
            | CollectiveKind::Reduce
            | CollectiveKind::Broadcast
            | CollectiveKind::Barrier
    )
}

/// The operation of the leader of `place`.
pub(super) fn operation(
    world: &World<NoPayload>,
    parts: &Parts,
    place: Place,
    call: Call,
) -> OperationSpec {
    let data = OperationSpec {
        operator: Operator::Sum,
        datatype: Datatype::I32,
        elements: call.bytes.div_ceil(4).max(1),
        target: Target::All,
        contributes: true,
        receives: true,
        digest: 0,
    };
    let is_root = || parts.root_of(place, call.root) == place;
    match call.kind {
        CollectiveKind::Barrier => OperationSpec::BARRIER,
        CollectiveKind::Reduce => {
            let root = parts.root_of(place, call.root);
            let member = parts.member(root).expect("all leaders of a part are in its tree");
            let target = Target::Member(world.endpoint_of(member));
            OperationSpec { target, receives: is_root(), ..data }
        }
        CollectiveKind::Broadcast => OperationSpec {
            operator: Operator::Broadcast,
            contributes: is_root(),
            receives: !is_root(),
            ..data
        },
        _ => data,
    }
}
