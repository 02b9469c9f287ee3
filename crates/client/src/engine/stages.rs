//! How the stages of the operation that runs are driven, one after the other.

use std::task::Poll;
use std::time::Duration;

use tributary_inter_host::DirectMethod;
use tributary_shm_collectives::{self as shm, HostGroup, Lost, PeerCheck, Waiter};
use tributary_tuning::Method;
use tributary_waits::awaited::WaitsFor;

use super::outcome::Failure;
use super::plan::Stage;
use super::{Engine, Progress};
use crate::operation::CollectiveError;

/// Longest sleep while waiting for other hosts, so that the progress hook is called that often.
const SLEEP_MAX: Duration = Duration::from_millis(2);
/// How long a leader sleeps that waits for its host and for others: no one descriptor tells of both.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

impl Engine {
    pub(crate) fn progress_or_pause(&mut self, waiter: &mut Waiter) {
        if self.progress() {
            waiter.reset();
        } else {
            self.pause(waiter);
        }
    }

    /// Lets a little time pass, or sleeps until the operation that runs can go on.
    pub(crate) fn pause(&mut self, waiter: &mut Waiter) {
        let Some((waits_for, method)) = self.awaited_stage() else {
            waiter.pause(std::thread::sleep);
            return;
        };
        match (waits_for, &mut self.host) {
            (WaitsFor::InterHost, _) => self.methods.method(method).pause(waiter, SLEEP_MAX),
            (WaitsFor::Both, _) => {
                let method = self.methods.method(method);
                if waiter.pause(|_| method.sleep(SHORT_SLEEP)) == PeerCheck::Full {
                    method.check();
                }
            }
            (WaitsFor::Host, Some(host)) => host.pause(waiter),
            (WaitsFor::Host, None) => unreachable!("a rank that waits for its host is not alone"),
        }
    }

    /// What the stage under way waits for, and the method that it uses between hosts; none if there is
    /// no such stage.
    fn awaited_stage(&self) -> Option<(WaitsFor, Method)> {
        let current = self.current.as_ref()?;
        match current.plan.get(current.next)? {
            Stage::Host(_) => Some((WaitsFor::Host, Method::Tree)),
            Stage::InterHost { method, .. } => Some((WaitsFor::InterHost, *method)),
            Stage::MultiLeader(_) => Some((current.multi_leader.waits_for, Method::Direct)),
            Stage::Streamed(streamed) => Some((streamed.waits_for(), Method::Tree)),
            Stage::Local(_) => None,
        }
    }

    /// Others may need this rank to settle the loss of a tree, or an answer about an operation that is over here, whatever it is
    /// waiting for itself.
    pub(super) fn attend_to_others(&mut self) -> Result<(), CollectiveError> {
        if let Some(direct) = &mut self.methods.direct {
            direct.attend();
        }
        match &mut self.methods.tree {
            Some(tree) => tree.attend().map_err(|abort| self.on_abort(Method::Tree, abort)),
            None => Ok(()),
        }
    }

    /// Runs the current operation's stages as far as they go.
    pub(super) fn advance(&mut self) -> Result<Progress, CollectiveError> {
        self.attend_to_others()?;
        loop {
            match self.advance_stage() {
                Ok(None) if self.begin_next_step()? => {}
                Ok(None) => return Ok(Progress::Over),
                Ok(Some(true)) => {
                    if let Some(current) = &mut self.current {
                        current.next += 1;
                        current.is_started = false;
                    }
                }
                Ok(Some(false)) => {
                    self.check_others()?;
                    return Ok(Progress::Waiting);
                }
                Err(Failure::Host(lost)) => return Err(self.on_lost(lost)),
                Err(Failure::InterHost(method, abort)) => return Err(self.on_abort(method, abort)),
            }
        }
    }

    /// Goes on with the stage that is next. `true` once it is over; none if there is no stage left.
    fn advance_stage(&mut self) -> Result<Option<bool>, Failure> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let Some(stage) = current.plan.get_mut(current.next) else { return Ok(None) };
        let is_first = !std::mem::replace(&mut current.is_started, true);
        let host = self.host.as_mut();
        let is_over = match stage {
            Stage::Host(operation) => {
                let host = host.expect("a host stage has a host group");
                poll_host(host, operation, is_first).map_err(Failure::Host)?
            }
            Stage::InterHost { method, operation } => {
                if is_first {
                    self.methods.note_call(*method, operation);
                }
                let (name, method) = (*method, self.methods.method(*method));
                let started = if is_first {
                    // SAFETY: the buffers belong to the operation that runs.
                    unsafe { method.start(operation) }
                } else {
                    Ok(())
                };
                let polled = started.and_then(|()| method.poll());
                polled.map_err(|abort| Failure::InterHost(name, abort))?
            }
            Stage::MultiLeader(partition) => {
                let links = self.methods.direct.as_mut().map(DirectMethod::links);
                current.multi_leader.advance(partition, host, links)?
            }
            Stage::Streamed(streamed) => {
                let host = host.expect("a streamed stage has a host group");
                if let Some(operation) = streamed.operation().filter(|_| is_first) {
                    self.methods.note_call(Method::Tree, operation);
                }
                streamed.advance(host, self.methods.tree.as_mut())?
            }
            Stage::Local(local) => {
                // SAFETY: the buffers are those of the operation that runs, and of its plan.
                unsafe { local.run(&self.placement) };
                true
            }
        };
        Ok(Some(is_over))
    }

    /// While a leader waits for other hosts, a rank of its own host may die or give up, and so may a host that it does not
    /// wait for. A program that only tests its requests comes by here alone.
    fn check_others(&mut self) -> Result<(), CollectiveError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let (method, waits_for) = match current.plan.get(current.next) {
            Some(Stage::InterHost { method, .. }) => (Some(*method), WaitsFor::InterHost),
            Some(Stage::MultiLeader(_)) => (Some(Method::Direct), WaitsFor::Both),
            Some(Stage::Streamed(_)) => (Some(Method::Tree), WaitsFor::Both),
            None | Some(Stage::Host(_) | Stage::Local(_)) => (None, WaitsFor::Host),
        };
        let method = method.filter(|method| self.methods.open(*method).is_some());
        // An operation that goes on need not be looked at: most do before the clock would be read again.
        let waits_on = method.is_some() && std::mem::replace(&mut current.has_waited, true);
        if let Some(method) = method.filter(|_| waits_on && self.checks_of_hosts.is_due()) {
            self.methods.method(method).check();
            if let Err((failed, abort)) = self.methods.check_other(method) {
                return Err(self.on_abort(failed, abort));
            }
        }
        match &mut self.host {
            Some(host) if waits_for.looks_at_host() => {
                host.check_peers().map_err(|lost| self.on_lost(lost))
            }
            _ => Ok(()),
        }
    }
}

fn poll_host(
    host: &mut HostGroup,
    operation: &shm::Operation,
    is_first: bool,
) -> Result<bool, Lost> {
    if is_first {
        // SAFETY: the buffers belong to the operation that runs.
        unsafe { host.start(*operation)? };
    }
    Ok(matches!(host.poll()?, Poll::Ready(())))
}
