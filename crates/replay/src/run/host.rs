//! A call as a collective of hosts alone.

use tributary_algorithms::CollectiveKind;
use tributary_sim::measure::choose_algorithm;
use tributary_sim::preset::Preset;
use tributary_sim::world::HostCollective;
use tributary_workload::Call;

use super::parts::{Parts, Place};

/// The collective of the leaders.
pub(super) fn operation(
    preset: &Preset,
    parts: &Parts,
    place: Place,
    call: Call,
) -> HostCollective {
    let bytes = match call.kind {
        // Schedules have the whole vector in mind.
        CollectiveKind::Allgather => call.bytes * u64::from(parts.ranks(place)),
        CollectiveKind::Barrier => 0,
        _ => call.bytes,
    };
    HostCollective {
        algorithm: choose_algorithm(preset, call.kind, bytes as usize, parts.ranks(place)),
        collective: call.kind.rooted_at(parts.root_of(place, call.root).host),
        elements: bytes.div_ceil(4).max(1),
        element_bytes: 4,
    }
}
