//! A communicator: collectives of its ranks, inside each host and between hosts.

use std::sync::Arc;

use tributary_algorithms::{Collective, CollectiveKind};
use tributary_wire::Operator;

use crate::attendant::Attendant;
use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::engine::Engine;
use crate::exclusive::Exclusive;
use crate::operation::{CollectiveError, Operation};
use crate::prepared::Prepared;
use crate::progress_hook::ProgressHook;
use crate::request::{Request, enlist};
use crate::roomy_stack::with_room;
use crate::setup::{Ready, Unavailable, Wanted, set_up};
use crate::shared::Shared;
use tributary_inter_host::PairNumber;
use tributary_report::{Counters, PathKind};
use tributary_selection::{Choice, Path};
use tributary_settings::Sums;
use tributary_shm_collectives::Lost;

/// A communicator at one rank.
///
/// All ranks run the same operations in the same order; blocking and nonblocking ones queue up
/// together. Safe to use from several threads, as far as that rule allows.
pub struct Communicator {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    context: Arc<Context>,
    is_on_one_host: bool,
}

impl Communicator {
    /// Sets a communicator up; its operations are counted in `counters`. Collective over its ranks, and
    /// the outcome is the same on all. `progress_hook` is called while this rank waits.
    ///
    /// # Errors
    /// If it can't be carried by us: why, in one line.
    pub fn create(
        context: &Arc<Context>,
        bootstrap: &mut dyn Bootstrap,
        counters: &Arc<Counters>,
        progress_hook: ProgressHook,
    ) -> Result<Self, Unavailable> {
        Self::create_with(context, bootstrap, counters, progress_hook, None)
    }

    /// The same; rank 0's word on how floats are added counts for this communicator, instead of its settings'.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(
        context: &Arc<Context>,
        bootstrap: &mut dyn Bootstrap,
        counters: &Arc<Counters>,
        progress_hook: ProgressHook,
        sums: Option<Sums>,
    ) -> Result<Self, Unavailable> {
        with_room(|| Self::set_up(context, bootstrap, counters, progress_hook, sums))
    }

    fn set_up(
        context: &Arc<Context>,
        bootstrap: &mut dyn Bootstrap,
        counters: &Arc<Counters>,
        progress_hook: ProgressHook,
        sums: Option<Sums>,
    ) -> Result<Self, Unavailable> {
        let sums = sums.unwrap_or(context.settings.sums);
        let wanted = Wanted { label: counters.label(), sums };
        let Ready { engine, notes, is_on_one_host } =
            set_up(context, bootstrap, wanted, progress_hook)?;
        counters.set_hosts(notes.hosts);
        counters.set_notes(notes.joining, notes.carriers, notes.memory);
        let mut engine = engine;
        engine.report_to(Arc::clone(counters));
        let policy = context.policy;
        let alarms = engine.alarms();
        let engine = if context.callers_take_turns && alarms.is_empty() {
            // SAFETY: the caller of `Context::callers_take_turns` has promised it, except for the thread
            // that drives requests; `start` shares the engine before that thread learns of it.
            unsafe { Exclusive::new_unshared(engine) }
        } else {
            Exclusive::new(engine)
        };
        let shared = Arc::new(Shared { engine, policy });
        for alarm in &alarms {
            let attendant =
                Attendant { shared: Arc::downgrade(&shared), alarm: Arc::downgrade(alarm) };
            alarm.attended_by(Box::new(attendant));
        }
        if !alarms.is_empty() {
            shared.engine.lock().watch();
        }
        Ok(Self {
            shared,
            counters: Arc::clone(counters),
            context: Arc::clone(context),
            is_on_one_host,
        })
    }

    /// Runs an operation to its end and counts it.
    ///
    /// # Errors
    /// If a rank or the tree was lost (the communicator is then of no further use), or the
    /// operation is none.
    ///
    /// # Safety
    /// `source` and `target` are valid for the lengths that [`Operation`] states where this rank's part
    /// in it uses them, in place as it says or not overlapping, and nobody else uses them until
    /// this returns; so are the blocks of a reduce-scatter, and the combiner.
    pub unsafe fn run(&self, operation: &Operation) -> Result<(), CollectiveError> {
        // SAFETY: as the caller of this function promises.
        unsafe { self.run_counted_or_not(operation, true) }
    }

    /// Runs another piece of an operation, which was counted with its first one.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn run_on(&self, operation: &Operation) -> Result<(), CollectiveError> {
        // SAFETY: as the caller of this function promises.
        unsafe { self.run_counted_or_not(operation, false) }
    }

    // Always inlined, and so is what follows: after a wait, every caller to return to is a line that a core has to fetch.
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn run_counted_or_not(
        &self,
        operation: &Operation,
        counts: bool,
    ) -> Result<(), CollectiveError> {
        let counted = counts.then_some(operation);
        let mut engine = self.shared.engine.lock();
        engine.agree_on_losses()?;
        if let Some(gathered) = engine.gather_if_needed(operation)? {
            // SAFETY: what is gathered has memory of its own.
            unsafe { self.carry(&mut engine, &gathered.operation(), counted) }?;
            drop(engine);
            // SAFETY: the engine's part is over; the rest is as the caller of this function promises.
            unsafe { gathered.combine() };
            return Ok(());
        }
        // SAFETY: as the caller of this function promises.
        unsafe { self.carry(&mut engine, operation, counted) }
    }

    /// Runs an operation that the engine does all of, and counts what it is done for.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn carry(
        &self,
        engine: &mut Engine,
        carried: &Operation,
        counted: Option<&Operation>,
    ) -> Result<(), CollectiveError> {
        let choice = engine.choose(carried);
        engine.count(choice);
        if let Some(operation) = counted {
            self.count(engine, operation, choice);
        }
        // SAFETY: as the caller of this function promises.
        unsafe { engine.run(carried, choice.path) }
    }

    /// An allreduce, its arguments in registers: [`run`](Self::run) with the least overhead where all
    /// ranks are on one host. Fields as in [`Operation`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    pub unsafe fn allreduce(
        &self,
        pair: PairNumber,
        elements: u64,
        source: *const u8,
        target: *mut u8,
    ) -> Result<(), CollectiveError> {
        let outcome = self.run_on_idle_host(CollectiveKind::Allreduce, move |engine| {
            let (host, kernel) = engine.idle_host_and_kernel(pair)?;
            let len_bytes = kernel.len_bytes(elements);
            // SAFETY: as the caller of this function promises.
            unsafe { host.allreduce_of_two(kernel, source, target, len_bytes) }
        });
        match outcome {
            Some(outcome) => self.or_lost(outcome),
            // SAFETY: as the caller of this function promises.
            None => unsafe { self.run_pair(Collective::Allreduce, pair, elements, source, target) },
        }
    }

    /// A reduction to one rank, likewise.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    pub unsafe fn reduce(
        &self,
        pair: PairNumber,
        elements: u64,
        root: u32,
        source: *const u8,
        target: *mut u8,
    ) -> Result<(), CollectiveError> {
        let outcome = self.run_on_idle_host(CollectiveKind::Reduce, move |engine| {
            let (host, kernel) = engine.idle_host_and_kernel(pair)?;
            let len_bytes = kernel.len_bytes(elements);
            // SAFETY: as the caller of this function promises; on one host the local ranks are those of
            // the communicator.
            unsafe { host.reduce_lines(root, kernel, source, target, len_bytes) }
        });
        let collective = Collective::Reduce { root };
        match outcome {
            Some(outcome) => self.or_lost(outcome),
            // SAFETY: as the caller of this function promises.
            None => unsafe { self.run_pair(collective, pair, elements, source, target) },
        }
    }

    /// A broadcast of `len_bytes`, likewise.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run), for `buffer`.
    #[inline]
    pub unsafe fn broadcast(
        &self,
        len_bytes: u64,
        root: u32,
        buffer: *mut u8,
    ) -> Result<(), CollectiveError> {
        let outcome = self.run_on_idle_host(CollectiveKind::Broadcast, move |engine| {
            let host = engine.idle_host()?;
            // SAFETY: as the caller of this function promises; on one host the local ranks are those of
            // the communicator.
            unsafe { host.broadcast_line(root, buffer, buffer, len_bytes as usize) }
        });
        if let Some(outcome) = outcome {
            return self.or_lost(outcome);
        }
        let operation = Operation {
            collective: Collective::Broadcast { root },
            operator: Operator::Broadcast,
            elements: len_bytes,
            source: buffer,
            target: buffer,
            ..Operation::BARRIER
        };
        // SAFETY: as the caller of this function promises.
        unsafe { self.run(&operation) }
    }

    /// A barrier, likewise.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[inline]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        let outcome = self.run_on_idle_host(CollectiveKind::Barrier, move |engine| {
            engine.idle_host()?.barrier_of_two()
        });
        match outcome {
            Some(outcome) => self.or_lost(outcome),
            // SAFETY: a barrier has no buffers.
            None => unsafe { self.run(&Operation::BARRIER) },
        }
    }

    /// Starts an operation and counts it.
    ///
    /// # Errors
    /// As [`Communicator::run`], as far as it is known by now; the rest comes with the request.
    ///
    /// # Safety
    /// As [`Communicator::run`], until the request says that the operation is over, and from any
    /// thread of the process.
    pub unsafe fn start(&self, operation: Operation) -> Result<Request, CollectiveError> {
        // From here on the thread that drives requests may want the engine.
        self.shared.engine.share();
        let mut engine = self.shared.engine.lock();
        let (carried, state) = engine.prepare_nonblocking(operation)?;
        let choice = engine.choose(&carried);
        self.count(&engine, &operation, choice);
        engine.start(carried, choice.path, Arc::clone(&state))?;
        let needs_driving = engine.needs_driving();
        drop(engine);
        if needs_driving {
            enlist(&self.shared);
        }
        Ok(Request::new(state, Arc::clone(&self.shared)))
    }

    /// Goes on with what was started, without waiting.
    pub fn progress(&self) {
        self.shared.try_progress();
    }

    /// Prepares an operation that is to be started many times. Local.
    ///
    /// # Errors
    /// As [`Communicator::start`].
    ///
    /// # Safety
    /// The blocks of a reduce-scatter are valid now.
    pub unsafe fn prepare(&self, operation: Operation) -> Result<Prepared, CollectiveError> {
        Prepared::new(&self.shared, &self.counters, operation, self.context.callers_take_turns)
    }

    /// Gives the communicator up at all its ranks, as the program wants it: whatever waits on it
    /// ends with [`CollectiveError::GivenUp`], and so does every later operation. Not collective. A
    /// thread of this process that waits on it has to be told by its [`ProgressHook`] first.
    pub fn give_up(&self) {
        self.shared.engine.lock().give_up();
    }

    /// The longest contribution, in bytes, with which a collective of this kind runs faster here than
    /// in the underlying MPI, as rank 0's settings say; none if any length may be asked for. The same at
    /// all ranks. Zero for collectives of one host on a communicator that spans several.
    #[must_use]
    pub fn longest_bytes(&self, kind: CollectiveKind) -> Option<u64> {
        self.shared.engine.lock().longest_bytes(kind)
    }

    /// The longest elements, in bytes, with which an operator of the caller's own
    /// ([`Combiner`](crate::Combiner)) runs here; 0 if none does: the hosts have no direct links, or not
    /// in the order that an operator needs that does not commute. The same at all ranks.
    #[must_use]
    pub fn combined_bytes_max(&self, commutes: bool) -> usize {
        self.shared.engine.lock().combined_bytes_max(commutes)
    }

    /// The longest contribution, in bytes, with which an operator of the caller's own runs where
    /// [`combined_bytes_max`](Self::combined_bytes_max) forbids it, and in nonblocking operations: all vectors
    /// are gathered then. The same at all ranks.
    #[must_use]
    pub fn gathered_bytes_max(&self) -> u64 {
        self.shared.engine.lock().gathered_bytes_max()
    }

    /// Whether all its ranks are on one host.
    #[must_use]
    pub fn is_on_one_host(&self) -> bool {
        self.is_on_one_host
    }

    /// The path that is selected for such an operation, if it is a blocking one.
    #[must_use]
    pub fn path(&self, operation: &Operation) -> Path {
        let mut engine = self.shared.engine.lock();
        engine.path_of_blocking(operation)
    }

    /// The path that such an operation takes now, as reports count it. Of the ranks of a host only its leader knows whether
    /// there is a tree: to others, what is selected for the tree takes it.
    #[must_use]
    pub fn path_kind(&self, operation: &Operation) -> PathKind {
        let mut engine = self.shared.engine.lock();
        let path = engine.path_of_blocking(operation);
        engine.path_kind(path)
    }

    /// Counts an operation that is about to run. The caller has the engine, so nobody else counts.
    fn count(&self, engine: &Engine, operation: &Operation, choice: Choice) {
        self.counters.count_in_turn(operation.collective.kind(), engine.path_kind(choice.path));
        if choice.avoids_losses() {
            self.counters.count_avoiding_losses();
        }
    }

    /// Lets `run` carry an operation out in shared memory, and counts it. `None` if that is not all it takes: nothing has been
    /// done then.
    #[inline]
    fn run_on_idle_host(
        &self,
        kind: CollectiveKind,
        run: impl FnOnce(&mut Engine) -> Option<Result<(), Lost>>,
    ) -> Option<Result<(), Lost>> {
        self.shared.engine.with(move |engine| {
            let outcome = run(engine);
            if let Some(Ok(())) = outcome {
                self.counters.count_in_turn(kind, PathKind::InHost);
            }
            outcome
        })
    }

    /// The outcome of what ran in shared memory.
    #[inline]
    fn or_lost(&self, outcome: Result<(), Lost>) -> Result<(), CollectiveError> {
        outcome.map_err(|lost| self.on_lost(lost))
    }

    #[cold]
    fn on_lost(&self, lost: Lost) -> CollectiveError {
        self.shared.engine.lock().on_lost(lost)
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[cold]
    unsafe fn run_pair(
        &self,
        collective: Collective,
        pair: PairNumber,
        elements: u64,
        source: *const u8,
        target: *mut u8,
    ) -> Result<(), CollectiveError> {
        let no_pair = CollectiveError::NoSuchPair { number: pair.0 };
        let (operator, datatype) = pair.pair().ok_or(no_pair)?;
        let operation = Operation {
            collective,
            datatype,
            operator,
            elements,
            source,
            target,
            ..Operation::BARRIER
        };
        // SAFETY: as the caller of this function promises.
        unsafe { self.run(&operation) }
    }
}

impl Drop for Communicator {
    /// Leaves. Not collective: other ranks may still be finishing their last operation.
    fn drop(&mut self) {
        self.shared.engine.lock().leave();
        self.context.release();
    }
}
