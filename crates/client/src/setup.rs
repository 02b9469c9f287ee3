//! How a communicator's ranks agree on carrying it, step by step and all together.
//!
//! Every step ends with an exchange in which each rank says whether it succeeded, so that all go
//! on or none does.

mod agreement;
mod approach;
mod direct;
mod failover;
mod hosts;
mod memory;
mod network;
mod ready;
mod request;
mod requirement;
mod rings;
mod sockets;
mod tree;
mod wanted;

use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::descriptors;
use crate::engine::{Engine, InterHostMethods, Parts};
use crate::progress_hook::ProgressHook;
pub use agreement::Unavailable;
use agreement::agree;
pub use network::network_of;
pub(crate) use ready::{Notes, Ready};
use tributary_selection::{Limits, Selection};
use tributary_settings::{Settings, Sums};
pub(crate) use wanted::Wanted;

/// Sets a communicator up. Collective, and the outcome is the same on all ranks.
pub(crate) fn set_up(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    wanted: Wanted<'_>,
    progress_hook: ProgressHook,
) -> Result<Ready, Unavailable> {
    let reserved = context.reserve();
    let outcome = set_up_reserved(context, bootstrap, wanted, progress_hook, reserved);
    let outcome = requirement::check(context.settings.requirement, outcome);
    if outcome.is_err() && reserved {
        context.release();
    }
    outcome
}

fn set_up_reserved(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    wanted: Wanted<'_>,
    progress_hook: ProgressHook,
    reserved: bool,
) -> Result<Ready, Unavailable> {
    let max = context.settings.communicators_max;
    let room = if reserved {
        descriptors::make_room()
    } else {
        Err(format!("{max} communicators are served already (TRIBUTARY_COMMUNICATORS_MAX)"))
    };
    agree(bootstrap, room)?;
    let (placement, split) = sockets::place(context, bootstrap)?;
    let (host, memory) = memory::share_memory(context, bootstrap, &placement)?;
    let joined = if placement.spans_hosts() {
        hosts::join(context, bootstrap, &placement, wanted)?
    } else {
        let selection = select_on_one_host(&context.settings, bootstrap, wanted.sums)?;
        hosts::Joined {
            methods: InterHostMethods::default(),
            selection,
            stream: None,
            carriers: None,
            refusal: None,
            without_failover: None,
            has_tree: false,
        }
    };
    let hosts::Joined { methods, selection, stream, carriers, refusal, .. } = joined;
    let hosts::Joined { without_failover, has_tree, .. } = joined;
    let joining: Vec<String> = [split, refusal].into_iter().flatten().collect();
    let notes = Notes {
        hosts: placement.hosts.len() as u32,
        joining: (!joining.is_empty()).then(|| joining.join("; ")),
        // What carries the data, and what would if that were lost.
        carriers: carriers.map(|carriers| match without_failover {
            Some(problem) => format!("{carriers}; {problem}"),
            None => carriers,
        }),
        memory: memory.join("; "),
        has_tree,
    };
    let is_on_one_host = !placement.spans_hosts();
    let (label, policy) = (wanted.label.to_owned(), context.policy);
    let late_after = context.settings.late_after;
    let parts = Parts { label, placement, host, methods, selection, stream, policy, late_after };
    Ok(Ready { engine: Engine::new(parts, progress_hook), notes, is_on_one_host })
}

/// What rank 0's settings say of a communicator of one host.
fn select_on_one_host(
    settings: &Settings,
    bootstrap: &mut dyn Bootstrap,
    sums: Sums,
) -> Result<Selection, Unavailable> {
    let mut terms = [0; Limits::BYTES + 1];
    terms[..Limits::BYTES].copy_from_slice(&Limits::on_one_host(settings).to_bytes());
    terms[Limits::BYTES] = u8::from(sums == Sums::Exact);
    bootstrap.broadcast(0, &mut terms)?;
    let [limits @ .., sums_exactly] = terms;
    Ok(Selection::on_one_host(Limits::from_bytes(limits), sums_exactly != 0))
}
