//! How a process belongs to a communicator: how it comes to it, runs operations on it, and leaves it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use tributary_client::{Bootstrap, Communicator as ClientCommunicator, Sums};

use crate::arguments::Asked;
use crate::communicator::Communicator;
use crate::errors::{self, TributaryError};
use crate::interrupt;
use crate::lane::{self, Lane};
use crate::pending::Pending;
use crate::process::{self, ContextOf};
use crate::request::Request;

impl Communicator {
    /// Collective over the bootstrap's ranks; takes a place at the manager unless it has one to share.
    pub(crate) fn create(
        bootstrap: &mut dyn Bootstrap,
        context: ContextOf,
        label: &str,
        sums: Option<Sums>,
    ) -> Result<Self, String> {
        let context = match context {
            ContextOf::Parent(context) => context,
            ContextOf::New { computes_beside } => {
                process::open(bootstrap, computes_beside).map_err(|error| error.to_string())?
            }
        };
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let counters = process::counters(label, rank, size);
        let gives_up = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&gives_up);
        let hook = Arc::new(move || lane::verdict(&asked));
        let communicator =
            ClientCommunicator::create_with(&context, bootstrap, &counters, hook, sums)
                .map_err(|error| error.to_string())?;
        Ok(Self {
            rank,
            size,
            label: label.to_owned(),
            is_on_one_host: communicator.is_on_one_host(),
            sums,
            context,
            lane: Mutex::new(Some(Lane::new(communicator, gives_up))),
            process: std::process::id(),
        })
    }

    pub(crate) fn lane(&self) -> PyResult<Arc<Lane>> {
        if self.process != std::process::id() {
            let maker = self.process;
            return Err(TributaryError::new_err(format!(
                "{} belongs to process {maker}, which forked this one: make another one here",
                self.label
            )));
        }
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lane.ok_or_else(|| TributaryError::new_err(format!("{} is closed", self.label)))
    }

    pub(crate) fn run(&self, py: Python<'_>, asked: &Asked) -> PyResult<()> {
        let lane = self.lane()?;
        // The buffers are held by the caller.
        let operation = asked.operation;
        let run = move || {
            let began_at = process::wants_times().then(Instant::now);
            // SAFETY: what the caller holds keeps the buffers where they are until this call returns. That nobody
            // else uses them meanwhile is what the package asks of its users.
            let outcome = unsafe { lane.run(&operation) };
            if let Some(began_at) = began_at {
                let path = lane.communicator().path_kind(&operation).into();
                process::count_time(&operation, path, began_at.elapsed());
            }
            outcome
        };
        let (outcome, raised) = py.detach(|| interrupt::watch_interrupts(run));
        match (raised, outcome) {
            (Some(raised), _) => Err(raised),
            (None, Err(error)) => Err(errors::of_collective(py, &error)),
            (None, Ok(())) => Ok(()),
        }
    }

    pub(crate) fn start(&self, py: Python<'_>, asked: Asked) -> PyResult<Request> {
        let lane = self.lane()?;
        process::count_not_measured(&asked.operation);
        let pending = Arc::new(Pending::new(asked));
        // SAFETY: the pending operation holds its buffers. That nobody else uses them meanwhile is what
        // the package asks of its users.
        py.detach(|| unsafe { lane.start(Arc::clone(&pending)) });
        Ok(Request::new(lane, pending))
    }

    pub(crate) fn leave(&self) {
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lane) = lane else { return };
        if self.process != std::process::id() {
            // The parent's sockets, and its place in shared memory, are not this process's to give up.
            std::mem::forget(lane);
            return;
        }
        if !lane.is_idle() {
            lane.give_up();
        }
        lane.close();
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Waits for nobody, but for the thread of an operation that is being given up.
        let is_left = Python::try_attach(|py| py.detach(|| self.leave()));
        if is_left.is_none() {
            // The process ends.
            std::mem::forget(self.lane.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
