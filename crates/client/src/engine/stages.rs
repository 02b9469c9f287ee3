//! How the stages of the operation that runs are driven, one after the other.

use std::task::Poll;
use std::time::Duration;

use tributary_wire::frame::Abort;

use super::{Engine, Progress};
use crate::leaders::{Failure, WaitsFor};
use crate::operation::CollectiveError;
use crate::pipeline;
use crate::plan::Stage;
use crate::trees::Trees;
use tributary_shm_collectives::waiting::{PeerCheck, Waiter};
use tributary_shm_collectives::{HostGroup, Lost};

/// Longest sleep while waiting for other hosts, so that a blocking wait is asked that often whether
/// it is still wanted, which drives the MPI beneath.
const SLEEP_MAX: Duration = Duration::from_millis(2);

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
        let current = self.current.as_ref();
        let stage = current.and_then(|current| current.plan.get(current.next));
        let waits_for = match stage {
            Some(Stage::Host(_)) => Some(WaitsFor::Host),
            Some(Stage::Mesh(_)) => Some(WaitsFor::Mesh),
            Some(Stage::Leaders(_)) => current.map(|current| current.leading.waits_for),
            _ => None,
        };
        if let Some(Stage::Pipeline(pipeline)) = stage {
            let waits_for = pipeline.waits_for();
            self.pause_pipeline(waits_for, waiter);
            return;
        }
        match (waits_for, &mut self.host, &mut self.mesh, &mut self.tree) {
            (Some(WaitsFor::Host), Some(host), _, _) => host.pause(waiter),
            (Some(WaitsFor::Mesh), _, Some(mesh), _) => {
                let nap = |time: Duration| mesh.sleep(time.min(SLEEP_MAX));
                if waiter.pause(nap) == PeerCheck::Full {
                    mesh.check_peers();
                }
            }
            (Some(WaitsFor::Both), _, Some(mesh), _) => {
                // No one thing tells of both, so the sleep is short.
                if waiter.pause(|_| mesh.sleep(GLANCE)) == PeerCheck::Full {
                    mesh.check_peers();
                }
            }
            (None, _, _, Some(tree)) if matches!(stage, Some(Stage::Tree { .. })) => {
                tree.pause(waiter, SLEEP_MAX);
            }
            _ => {
                waiter.pause(std::thread::sleep);
            }
        }
    }

    fn pause_pipeline(&mut self, waits_for: pipeline::WaitsFor, waiter: &mut Waiter) {
        let tree = self.tree.as_mut().map(Trees::first);
        match (waits_for, &mut self.host, tree) {
            (pipeline::WaitsFor::Tree, _, Some(tree)) => {
                waiter.pause(|time| tree.sleep(time.min(SLEEP_MAX)));
            }
            // No one thing tells of both, so the sleep is short.
            (pipeline::WaitsFor::Both, _, Some(tree)) => {
                waiter.pause(|_| tree.sleep(GLANCE));
            }
            (_, Some(host), _) => host.pause(waiter),
            (_, None, _) => unreachable!("a pipeline has a host group"),
        }
    }

    /// Runs the current operation's stages as far as they go.
    pub(super) fn advance(&mut self) -> Result<Progress, CollectiveError> {
        loop {
            let Some(current) = &mut self.current else { return Ok(Progress::Over) };
            let Some(stage) = current.plan.get_mut(current.next) else { return Ok(Progress::Over) };
            let is_first = !std::mem::replace(&mut current.is_started, true);
            let outcome = match stage {
                Stage::Host(operation) => {
                    let host = self.host.as_mut().expect("a host stage has a host group");
                    poll_host(host, operation, is_first).map_err(Trouble::Host)
                }
                Stage::Pipeline(pipeline) => {
                    let host = self.host.as_mut().expect("a pipeline has a host group");
                    let tree = self.tree.as_mut().map(Trees::first);
                    pipeline.advance(host, tree).map_err(Trouble::from)
                }
                Stage::Leaders(partition) => current
                    .leading
                    .advance(partition, self.host.as_mut(), self.mesh.as_mut())
                    .map_err(Trouble::from),
                Stage::Tree { spec, source, target, len_bytes } => {
                    let tree = self.tree.as_mut().expect("a tree stage has a tree");
                    let started = if is_first {
                        // SAFETY: the buffers belong to the operation that runs.
                        unsafe { tree.start(*spec, *source, *target, *len_bytes) }
                    } else {
                        Ok(())
                    };
                    started.and_then(|()| tree.poll()).map_err(Trouble::Tree)
                }
                Stage::Mesh(operation) => {
                    let mesh = self.mesh.as_mut().expect("a mesh stage has a mesh");
                    let started = if is_first {
                        // SAFETY: the buffers belong to the operation that runs.
                        unsafe { mesh.start(operation) }
                    } else {
                        Ok(())
                    };
                    started.and_then(|()| mesh.poll()).map_err(Trouble::Mesh)
                }
                Stage::Copy { source, target, len_bytes } => {
                    // SAFETY: source and target are the operation's, and differ.
                    unsafe { std::ptr::copy(*source, *target, *len_bytes) };
                    Ok(true)
                }
            };
            match outcome {
                Ok(true) => {
                    current.next += 1;
                    current.is_started = false;
                }
                Ok(false) => {
                    self.look_after_host()?;
                    return Ok(Progress::Waiting);
                }
                Err(Trouble::Host(lost)) => return Err(self.on_lost(lost)),
                Err(Trouble::Tree(abort)) => return Err(self.on_abort(abort)),
                Err(Trouble::Mesh(abort)) => return Err(self.on_mesh_abort(abort)),
            }
        }
    }

    /// While a leader waits for other hosts, a rank of its own host may die or give up.
    fn look_after_host(&mut self) -> Result<(), CollectiveError> {
        let Some(current) = &self.current else { return Ok(()) };
        let (
            Some(Stage::Tree { .. } | Stage::Mesh(_) | Stage::Leaders(_) | Stage::Pipeline(_)),
            Some(host),
        ) = (current.plan.get(current.next), &mut self.host)
        else {
            return Ok(());
        };
        host.check_peers().map_err(|lost| self.on_lost(lost))
    }
}

/// How long a leader sleeps that waits for its host and for others.
const GLANCE: Duration = Duration::from_micros(50);

enum Trouble {
    Host(Lost),
    Tree(Abort),
    Mesh(Abort),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Host(lost) => Self::Host(lost),
            Failure::Mesh(abort) => Self::Mesh(abort),
        }
    }
}

impl From<pipeline::Failure> for Trouble {
    fn from(failure: pipeline::Failure) -> Self {
        match failure {
            pipeline::Failure::Host(lost) => Self::Host(lost),
            pipeline::Failure::Tree(abort) => Self::Tree(abort),
        }
    }
}

fn poll_host(
    host: &mut HostGroup,
    operation: &tributary_shm_collectives::Operation,
    is_first: bool,
) -> Result<bool, Lost> {
    if is_first {
        // SAFETY: the buffers belong to the operation that runs.
        unsafe { host.start(*operation)? };
    }
    Ok(matches!(host.poll()?, Poll::Ready(())))
}
