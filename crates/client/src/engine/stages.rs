//! How the stages of the operation that runs are driven, one after the other.

use std::task::Poll;

use tributary_wire::frame::Abort;

use super::{Engine, Progress};
use crate::host::{HostGroup, Lost};
use crate::operation::CollectiveError;
use crate::plan::Stage;
use crate::waiting::{Checkup, Waiter};

impl Engine {
    /// Lets a little time pass, or sleeps until the operation that runs can go on.
    pub(crate) fn pause(&mut self, waiter: &mut Waiter) {
        let stage = self.current.as_ref().and_then(|current| current.plan.get(current.next));
        match (stage, &mut self.host, &mut self.tree, &mut self.mesh) {
            (Some(Stage::Host(_) | Stage::Shares(_)), Some(host), _, _) => host.pause(waiter),
            (Some(Stage::Tree { .. }), _, Some(tree), _) => {
                waiter.pause(|time| tree.sleep(time));
            }
            (Some(Stage::Mesh(_)), _, _, Some(mesh)) => {
                if waiter.pause(|time| mesh.sleep(time)) == Checkup::Full {
                    mesh.check_peers();
                }
            }
            _ => {
                waiter.pause(std::thread::sleep);
            }
        }
    }

    /// Runs the current operation's stages as far as they go.
    pub(super) fn advance(&mut self) -> Result<Progress, CollectiveError> {
        loop {
            let Some(current) = &mut self.current else { return Ok(Progress::Over) };
            let Some(stage) = current.plan.get(current.next) else { return Ok(Progress::Over) };
            let is_first = !std::mem::replace(&mut current.is_started, true);
            let outcome = match stage {
                Stage::Host(operation) => {
                    let host = self.host.as_mut().expect("a host stage has a host group");
                    poll_host(host, operation, is_first).map_err(Trouble::Host)
                }
                Stage::Shares(shares) => {
                    let host = self.host.as_mut().expect("shares are of a host group");
                    let operation = shares.operation(current.part);
                    match poll_host(host, &operation, is_first) {
                        Ok(true) if current.part + 1 < shares.leaders => {
                            current.part += 1;
                            current.is_started = false;
                            continue;
                        }
                        outcome => outcome.map_err(Trouble::Host),
                    }
                }
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
                    current.part = 0;
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
        let (Some(Stage::Tree { .. } | Stage::Mesh(_)), Some(host)) =
            (current.plan.get(current.next), &mut self.host)
        else {
            return Ok(());
        };
        host.check_peers().map_err(|lost| self.on_lost(lost))
    }
}

enum Trouble {
    Host(Lost),
    Tree(Abort),
    Mesh(Abort),
}

fn poll_host(
    host: &mut HostGroup,
    operation: &crate::host::Operation,
    is_first: bool,
) -> Result<bool, Lost> {
    if is_first {
        // SAFETY: the buffers belong to the operation that runs.
        unsafe { host.start(*operation)? };
    }
    Ok(matches!(host.poll()?, Poll::Ready(())))
}
