//! Collectives that are ours only where all ranks are on one host: reduce-scatter, allgather, scans.
//!
//! Owns what becomes of them in the host group, and how long they may be. Between hosts they are the
//! MPI's: aggregation nodes have no form of them.

use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::operation::{Blocks, Collective, CollectiveError, Operation};
use crate::report::Kind;
use crate::seat::Seat;
use crate::settings::Settings;
use tributary_shm_collectives::{Action, Combine};

/// What the ranks of a host do for `operation`; none for collectives that go between hosts as well.
/// `kernel` is none if the operation is no reduction.
#[inline]
pub(crate) fn action(
    operation: &Operation,
    kernel: Option<&'static dyn Combine>,
) -> Option<Action> {
    match operation.collective {
        Collective::ReduceScatter { blocks } => {
            Some(Action::ReduceScatter { kernel: kernel?, blocks })
        }
        Collective::Allgather => Some(Action::Allgather),
        Collective::Scan { inclusive } => Some(Action::Scan { kernel: kernel?, inclusive }),
        Collective::Allreduce
        | Collective::Reduce { .. }
        | Collective::Broadcast { .. }
        | Collective::Barrier => None,
    }
}

/// Whether these ranks can run `operation`, if it is one of these collectives.
///
/// # Errors
/// The ranks are on several hosts, or the blocks of a reduce-scatter are not those of its vector.
pub(crate) fn check(
    operation: &Operation,
    seat: &Seat,
    label: &str,
) -> Result<(), CollectiveError> {
    let (kind, elements) = (operation.kind(), operation.elements);
    if Longest::default().of(kind).is_none() {
        return Ok(());
    }
    let label = || label.to_owned();
    if seat.spans_hosts() {
        let hosts = seat.placement.hosts.len() as u32;
        return Err(CollectiveError::SeveralHosts { label: label(), kind, hosts });
    }
    let ranks = seat.ranks();
    match operation.collective {
        Collective::ReduceScatter { blocks: Blocks::Even }
            if !elements.is_multiple_of(u64::from(ranks)) =>
        {
            Err(CollectiveError::Blocks { label: label(), end: 0, elements })
        }
        Collective::ReduceScatter { blocks: Blocks::At(cuts) } => {
            // SAFETY: there is one more of them than there are ranks, as the caller of
            // `Communicator::run` or `start` promised.
            let end = unsafe { cuts.add(ranks as usize).read() };
            if end == elements {
                return Ok(());
            }
            Err(CollectiveError::Blocks { label: label(), end, elements })
        }
        _ => Ok(()),
    }
}

/// Longest contributions with which these collectives run faster here than in the MPI beneath, in
/// bytes: the same at all ranks of a communicator. Whoever has another way asks before it starts one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Longest {
    reduce_scatter_bytes: u64,
    allgather_bytes: u64,
    scan_bytes: u64,
}

impl Longest {
    /// What rank 0's settings say, at all ranks.
    pub(crate) fn agree(
        bootstrap: &mut dyn Bootstrap,
        settings: &Settings,
    ) -> Result<Self, BootstrapError> {
        let mine = [
            settings.reduce_scatter_max_bytes,
            settings.allgather_max_bytes,
            settings.scan_max_bytes,
        ];
        let mut bytes = mine.map(u64::to_le_bytes).concat();
        bootstrap.broadcast(0, &mut bytes)?;
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("eight"));
        Ok(Self { reduce_scatter_bytes: word(0), allgather_bytes: word(1), scan_bytes: word(2) })
    }

    /// The bound on one kind; none on those that are ours at any length.
    pub(crate) fn of(self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::ReduceScatter => Some(self.reduce_scatter_bytes),
            Kind::Allgather => Some(self.allgather_bytes),
            Kind::Scan | Kind::Exscan => Some(self.scan_bytes),
            Kind::Allreduce | Kind::Reduce | Kind::Barrier | Kind::Bcast => None,
        }
    }
}
