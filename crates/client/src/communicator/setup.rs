//! How a communicator's ranks agree on carrying it, step by step and all together.
//!
//! Every step ends with an exchange in which each rank says whether it succeeded, so that all go
//! on or none does.

use tributary_wire::control::{GroupGrant, GroupRequest};

use super::join::{Joint, join_hosts};
use super::memory::share_memory;
use super::sockets;
use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::context::Context;
use crate::engine::Engine;
use crate::on_host::Longest;
use crate::seat::Seat;
use crate::tree::{Approach, TreeMember};
use crate::ways::Ways;

/// Why a communicator is left to others, in one line that is the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The launcher's world failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Its ranks are on several hosts and no manager is named.
    #[error("spans {hosts} hosts, and no manager is named (TRIBUTARY_MANAGER)")]
    NoManager {
        /// How many.
        hosts: u32,
    },
    /// The manager refused a group, or did not answer.
    #[error("{0}")]
    NotGranted(String),
    /// A rank could not do its part of the set-up.
    #[error("rank {rank}: {problem}")]
    Rank {
        /// The first such rank.
        rank: u32,
        /// Its words.
        problem: String,
    },
}

pub(super) fn set_up(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    label: &str,
) -> Result<Engine, Unavailable> {
    let reserved = context.reserve();
    let outcome = set_up_reserved(context, bootstrap, label, reserved);
    if outcome.is_err() && reserved {
        context.release();
    }
    outcome
}

fn set_up_reserved(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    label: &str,
    reserved: bool,
) -> Result<Engine, Unavailable> {
    let max = context.settings.communicators_max;
    let room = if reserved {
        Ok(())
    } else {
        Err(format!("{max} communicators are served already (TRIBUTARY_COMMUNICATORS_MAX)"))
    };
    agree(bootstrap, room)?;
    let (placement, note) = sockets::place(context, bootstrap)?;
    let rank = bootstrap.rank();
    let mut seat = Seat {
        rank,
        placement,
        endpoints: Vec::new(),
        ways: Ways::default(),
        stream: None,
        longest: Longest::default(),
        note,
        carriers: None,
        memory_notes: Vec::new(),
    };
    let (host, notes) = share_memory(context, bootstrap, &seat)?;
    seat.memory_notes = notes;
    let joint = if seat.spans_hosts() {
        join_hosts(context, bootstrap, &mut seat, label)?
    } else {
        seat.longest = Longest::agree(bootstrap, &context.settings)?;
        Joint::default()
    };
    Ok(Engine::new(label.to_owned(), seat, host, joint, context.policy))
}

/// Goes on only if every rank has succeeded.
pub(super) fn agree<T>(
    bootstrap: &mut dyn Bootstrap,
    outcome: Result<T, String>,
) -> Result<T, Unavailable> {
    let problem = outcome.as_ref().err().map_or("", String::as_str);
    let problems = allgather_texts(bootstrap, problem)?;
    let first = problems.iter().position(|problem| !problem.is_empty());
    match (first, outcome) {
        (None, Ok(value)) => Ok(value),
        (Some(rank), _) => {
            Err(Unavailable::Rank { rank: rank as u32, problem: problems[rank].clone() })
        }
        (None, Err(problem)) => Err(Unavailable::Rank { rank: bootstrap.rank(), problem }),
    }
}

/// Rank 0 asks for a group on behalf of all leaders.
pub(super) fn request_group(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
    label: &str,
) -> Result<GroupGrant, Unavailable> {
    let hosts = seat.placement.hosts.len() as u32;
    let Some(job) = &context.job else { return Err(Unavailable::NoManager { hosts }) };
    let outsider = context.takes_outsider();
    let answer = (bootstrap.rank() == 0).then(|| {
        // What a process outside the group is to read is not streamed: nodes hold a stream's results
        // only until all members have them.
        let streams = context.settings.stream_min_bytes.filter(|_| !outsider);
        let request = GroupRequest {
            secret: job.admission.secret,
            label: label.to_owned(),
            hosts: seat.placement.hosts.clone(),
            osos: context.settings.osos,
            payload_max_bytes: context.settings.payload_max_bytes,
            stream: streams.map(|_| context.settings.stream),
            outsider,
        };
        job.manager.request_group(&job.admission, &request).map_err(|error| error.to_string())
    });
    let text = serde_json::to_string(&answer).expect("a grant is plain data");
    let text = broadcast_text(bootstrap, 0, &text)?;
    let answer: Option<Result<GroupGrant, String>> = serde_json::from_str(&text)
        .map_err(|_| BootstrapError("the group's grant arrived damaged".to_owned()))?;
    match answer {
        Some(Ok(grant)) if grant.endpoints.len() == seat.placement.hosts.len() => Ok(grant),
        Some(Ok(_)) => {
            Err(Unavailable::NotGranted("the manager granted another number of places".to_owned()))
        }
        Some(Err(problem)) => Err(Unavailable::NotGranted(problem)),
        None => Err(BootstrapError("the group's grant did not arrive".to_owned()).into()),
    }
}

/// Leaders take their places. Vectors from `stream_min_bytes` on are streamed, if the group may
/// stream.
pub(super) fn enter_tree(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
    grant: &GroupGrant,
    stream_min_bytes: Option<u64>,
) -> Result<Option<TreeMember>, Unavailable> {
    let entered = seat
        .is_leader()
        .then(|| {
            let endpoint = &grant.endpoints[seat.host() as usize];
            let settings = &context.settings;
            let stream_min_bytes = stream_min_bytes.filter(|_| grant.stream.is_some());
            let approach = Approach { transport: settings.transport, channel: settings.channel };
            TreeMember::enter(grant, endpoint, approach, &context.machine, stream_min_bytes)
        })
        .transpose()
        .map_err(|error| error.to_string());
    agree(bootstrap, entered)
}
