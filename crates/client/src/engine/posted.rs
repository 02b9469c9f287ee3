//! Operations that are started many times: what no start changes is found out once.
//!
//! A start goes to the end of the queue, like that of any nonblocking operation, unless it can be
//! *posted*: shared memory is all that it takes, nothing is before it in line, and after one step this
//! rank owes the others nothing. A posted operation is in no queue and nobody drives it, for the others
//! finish theirs without this rank, which takes its result when it waits. What comes after it puts it
//! into the queue first, so the order of operations holds.

use std::sync::Arc;
use std::task::Poll;

use tributary_shm_collectives as shm;

use super::plan::{Plan, Stage};
use super::prepared::{PreparedExchange, PreparedNumber, PreparedOperation};
use super::{Current, Engine, Queued, is_empty};
use crate::operation::{CollectiveError, Operation};
use crate::request_state::RequestState;
use tributary_inter_host::PairNumber;
use tributary_selection::Path;

impl Engine {
    /// Prepares an operation, whose starts report to `state`.
    ///
    /// # Errors
    /// If it is none; see [`CollectiveError`].
    pub(crate) fn prepare(
        &mut self,
        operation: Operation,
        path: Path,
        state: Arc<RequestState>,
    ) -> Result<PreparedNumber, CollectiveError> {
        self.check(&operation)?;
        // What is gathered ends with its request alone.
        let has_stage = self.is_one_host && !is_empty(&operation) && !state.is_gathering();
        let stage = has_stage.then(|| self.host_stage(&operation)).flatten();
        let prepared = Some(PreparedOperation { operation, path, stage, state });
        if let Some(free) = self.prepared.iter().position(Option::is_none) {
            self.prepared[free] = prepared;
            return Ok(PreparedNumber::of_place(free));
        }
        self.prepared.push(prepared);
        Ok(PreparedNumber::of_place(self.prepared.len() - 1))
    }

    /// What an operation is as an exchange of two ranks in shared memory; none if it is another.
    pub(crate) fn exchange(&self, number: PreparedNumber) -> Option<PreparedExchange> {
        let PreparedOperation { operation, stage, .. } = self.prepared[number.place()].as_ref()?;
        let exchange = self.host.as_ref()?.exchange(stage.as_ref()?)?;
        let pair = PairNumber::new(operation.operator, operation.datatype);
        Some(PreparedExchange { number, exchange, kernel: self.kernels.adapter(pair) })
    }

    /// Starts an operation once more. `false` if it cannot begin at once: nothing has been done then.
    ///
    /// # Safety
    /// As `Communicator::start`.
    #[inline]
    pub(crate) unsafe fn post_exchange(&mut self, prepared: &PreparedExchange) -> bool {
        let Some(host) = self.idle_host() else { return false };
        // SAFETY: as the caller of this function promises; the exchange is of this group.
        if !unsafe { host.post_exchange(&prepared.exchange) } {
            return false;
        }
        self.posted = Some(prepared.number);
        self.has_idle_host = false;
        true
    }

    /// Waits for an operation, if it is posted as an exchange. `false` if not, or if it has failed:
    /// [`complete_posted`](Self::complete_posted) then says how.
    #[inline]
    pub(crate) fn complete_exchange(&mut self, prepared: &PreparedExchange) -> bool {
        let Some(host) = &mut self.host else { return false };
        if self.posted != Some(prepared.number)
            || self.failed.is_some()
            || !host.complete_exchange(prepared.kernel)
        {
            return false;
        }
        self.posted = None;
        // As it was before the start, and nothing has come since.
        self.has_idle_host = true;
        true
    }

    /// Forgets an operation that is not under way.
    pub(crate) fn forget(&mut self, number: PreparedNumber) {
        self.prepared[number.place()] = None;
    }

    /// Starts an operation once more. `true` if it is in the queue now.
    ///
    /// # Safety
    /// As `Communicator::start`.
    pub(crate) unsafe fn start_prepared(&mut self, number: PreparedNumber) -> bool {
        let prepared =
            self.prepared[number.place()].as_ref().expect("who starts it has not forgotten it");
        prepared.state.reset();
        if self.has_idle_host
            && let (Some(stage), Some(host)) = (&prepared.stage, &mut self.host)
        {
            // SAFETY: the buffers are valid until the operation is over, as the caller promises.
            let posted = unsafe { host.post(stage) };
            self.posted = Some(number);
            self.has_idle_host = false;
            return posted != Ok(shm::Posted::OwesNothing) && self.drive_posted(posted);
        }
        let (operation, path, state) =
            (prepared.operation, prepared.path, Arc::clone(&prepared.state));
        self.start_checked(operation, path, state);
        true
    }

    /// The posted operation has to be driven, or has failed.
    #[cold]
    fn drive_posted(&mut self, posted: Result<shm::Posted, shm::Lost>) -> bool {
        if let Err(lost) = posted {
            self.on_lost(lost);
        }
        self.enqueue_posted();
        // Ends it if the communicator has failed.
        self.progress();
        true
    }

    /// Waits for an operation, if it is the posted one.
    pub(crate) fn complete_posted(
        &mut self,
        number: PreparedNumber,
    ) -> Option<Result<(), CollectiveError>> {
        let outcome = match self.posted_host(number)? {
            Ok(host) => Ok(host.complete()),
            Err(error) => Err(error),
        };
        Some(self.end_posted(outcome))
    }

    /// Takes the result of an operation, if it is the posted one and the others have come.
    pub(crate) fn poll_posted(
        &mut self,
        number: PreparedNumber,
    ) -> Option<Result<(), CollectiveError>> {
        let outcome = match self.posted_host(number)?.map(shm::HostGroup::poll) {
            Ok(Ok(Poll::Pending)) => return None,
            Ok(Ok(Poll::Ready(()))) => Ok(Ok(())),
            Ok(Err(lost)) => Ok(Err(lost)),
            Err(error) => Err(error),
        };
        Some(self.end_posted(outcome))
    }

    /// Shared memory, if this operation is posted there; an error if the communicator has failed since.
    fn posted_host(
        &mut self,
        number: PreparedNumber,
    ) -> Option<Result<&mut shm::HostGroup, CollectiveError>> {
        if self.posted != Some(number) {
            return None;
        }
        let gone = || CollectiveError::GivenUp { label: self.label.clone() };
        match (&self.failed, &mut self.host) {
            (None, Some(host)) => Some(Ok(host)),
            (failed, _) => Some(Err(failed.clone().unwrap_or_else(gone))),
        }
    }

    /// The posted operation is over.
    fn end_posted(
        &mut self,
        outcome: Result<Result<(), shm::Lost>, CollectiveError>,
    ) -> Result<(), CollectiveError> {
        self.posted = None;
        self.note_idle();
        outcome?.map_err(|lost| self.on_lost(lost))
    }

    /// Puts the posted operation, if there is one, into the queue, which is empty: something comes after
    /// it, or it has to be driven.
    pub(crate) fn enqueue_posted(&mut self) {
        let Some(number) = self.posted.take() else { return };
        let prepared =
            self.prepared[number.place()].as_ref().expect("a posted operation is not forgotten");
        let stage = prepared.stage.expect("a posted operation takes shared memory alone");
        let (operation, path) = (prepared.operation, prepared.path);
        self.queue.push_back(Queued { operation, path, request: Arc::clone(&prepared.state) });
        let plan: Plan = [Stage::Host(stage)].into_iter().collect();
        self.current = Some(Current { is_started: true, ..Current::new(plan) });
        self.note_idle();
    }
}
