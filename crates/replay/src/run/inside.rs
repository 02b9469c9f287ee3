//! What a call costs inside a host, before and after hosts meet.

use tributary_algorithms::CollectiveKind;
use tributary_sim::engine::Picos;
use tributary_sim::measure::HostMemory;
use tributary_workload::Call;

/// When a host's leader may begin: everybody has come, and what leaders need is gathered.
pub(super) fn ready(memory: &HostMemory, call: Call, came_at: &[Picos]) -> Picos {
    let all = 0..came_at.len() as u32;
    match call.kind {
        CollectiveKind::Broadcast => came_at.iter().copied().max().unwrap_or_default(),
        CollectiveKind::Barrier => memory.gather(&all, came_at, 0),
        _ => memory.gather(&all, came_at, call.bytes as usize),
    }
}

/// The bytes of the result that a rank gets.
pub(super) fn result_bytes(call: Call, ranks: u32) -> usize {
    let bytes = match call.kind {
        CollectiveKind::Barrier => 0,
        CollectiveKind::Allgather => call.bytes * u64::from(ranks),
        CollectiveKind::ReduceScatter => call.bytes / u64::from(ranks.max(1)),
        _ => call.bytes,
    };
    bytes as usize
}
