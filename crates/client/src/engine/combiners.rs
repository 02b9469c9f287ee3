//! Operators of the caller's own: which of them the engine calls, and for which it gathers the vectors.

use std::sync::Arc;

use tributary_algorithms::{Collective, CollectiveKind};
use tributary_shm_collectives as shm;

use super::Engine;
use super::gathered::{Gathered, as_allgather};
use crate::combiner::Combiner;
use crate::operation::{CollectiveError, Operation};
use crate::request_state::RequestState;
use tributary_selection::Path;

/// Most memory for the vectors of one operation.
const GATHERED_BYTES_MAX: u64 = 256 << 10;

impl Engine {
    /// The longest elements with which the engine calls an operator of the caller's.
    pub(crate) fn combined_bytes_max(&self, commutes: bool) -> usize {
        let is_called = !self.placement.spans_hosts()
            || self.selection.has_direct_links() && (commutes || self.placement.is_in_host_order());
        if is_called { shm::element_bytes_max(self.placement.ranks()) } else { 0 }
    }

    /// The longest contribution that is gathered to be combined: as long as an allgather is worth while, and
    /// memory allows.
    pub(crate) fn gathered_bytes_max(&self) -> u64 {
        let by_memory = GATHERED_BYTES_MAX / u64::from(self.placement.ranks());
        let by_speed = self.longest_bytes(CollectiveKind::Allgather);
        by_speed.map_or(by_memory, |bytes| bytes.min(by_memory))
    }

    /// Whether the engine calls such an operator in a blocking operation.
    pub(super) fn check_combiner(
        &self,
        collective: Collective,
        combiner: Combiner,
    ) -> Result<(), CollectiveError> {
        let element_bytes = combiner.element_bytes();
        // Between hosts nobody has tried the parts of a vector in elements of another size.
        let goes_between = matches!(collective, Collective::Allreduce | Collective::Reduce { .. });
        let max_bytes = if goes_between || !self.placement.spans_hosts() {
            self.combined_bytes_max(combiner.commutes())
        } else {
            0
        };
        if (1..=max_bytes).contains(&element_bytes) {
            return Ok(());
        }
        Err(CollectiveError::NotCombined { label: self.label.clone(), element_bytes, max_bytes })
    }

    /// The combiner of a blocking operation that the engine does not call.
    fn combiner_left_to_mpi(&self, operation: &Operation) -> Option<Combiner> {
        operation
            .combiner
            .filter(|combiner| self.check_combiner(operation.collective, *combiner).is_err())
    }

    /// The path that a blocking operation takes, which may be that of its vectors.
    pub(crate) fn path_of_blocking(&mut self, operation: &Operation) -> Path {
        match self.combiner_left_to_mpi(operation) {
            Some(_) => self.path(&as_allgather(operation, operation.target)),
            None => self.path(operation),
        }
    }

    /// A blocking operation whose vectors are gathered; none if the engine does it all.
    pub(crate) fn gather_if_needed(
        &self,
        operation: &Operation,
    ) -> Result<Option<Gathered>, CollectiveError> {
        let combiner = self.combiner_left_to_mpi(operation);
        combiner.map(|combiner| self.gather(operation, combiner)).transpose()
    }

    /// What the engine does for a nonblocking operation, and the state of its request: the thread that drives
    /// it may call no operator of the caller's.
    pub(crate) fn prepare_nonblocking(
        &self,
        operation: Operation,
    ) -> Result<(Operation, Arc<RequestState>), CollectiveError> {
        let Some(combiner) = operation.combiner else { return Ok((operation, Arc::default())) };
        let gathered = self.gather(&operation, combiner)?;
        Ok((gathered.operation(), Arc::new(RequestState::gathering(gathered))))
    }

    fn gather(
        &self,
        operation: &Operation,
        combiner: Combiner,
    ) -> Result<Gathered, CollectiveError> {
        self.check_shape(operation)?;
        let (len_bytes, max_bytes) = (operation.len_bytes() as u64, self.gathered_bytes_max());
        if len_bytes > max_bytes {
            let label = self.label.clone();
            return Err(CollectiveError::NotGathered { label, len_bytes, max_bytes });
        }
        let (rank, ranks) = (self.placement.rank, self.placement.ranks());
        // SAFETY: `check_shape` has looked at the blocks.
        Ok(unsafe { Gathered::new(operation, combiner, rank, ranks) })
    }
}
