//! How leaders prepare for the loss of their tree.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use tributary_inter_host::failover::{Request, Terms};
use tributary_inter_host::watch::Alarm;
use tributary_inter_host::{DirectLinks, FailoverTree, TreeMember};
use tributary_settings::Switch;
use tributary_wire::control::{GroupGrant, GroupRequest};

use super::agreement::{Unavailable, agree};
use super::approach::approach_of;
use super::direct;
use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::engine::StreamUse;
use crate::external_receiver::write_grant;
use crate::job::Job;
use crate::lines::LineLimit;
use crate::placement::Placement;

/// A leader's place in a tree, and what takes over when the tree is lost; and why nothing does, in one line
/// that is the same on all ranks.
pub(super) struct Prepared {
    pub(super) tree: Option<FailoverTree>,
    pub(super) without: Option<String>,
}

/// A rank's place in the group that was granted; none at ranks that lead no host.
pub(super) struct Member<'a> {
    pub(super) member: Option<TreeMember>,
    pub(super) grant: &'a GroupGrant,
    pub(super) stream: Option<StreamUse>,
    /// What it was granted for.
    pub(super) request: GroupRequest,
}

/// Opens links that take over when the tree is lost, and are not called before.
pub(super) fn prepare(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    member: Member<'_>,
) -> Result<Prepared, Unavailable> {
    let (opened, without) = match open(context, bootstrap, placement) {
        Ok(opened) => (opened, None),
        Err(Unavailable::Rank { rank, problem }) => {
            (None, Some(format!("a lost tree ends it: rank {rank}: {problem}")))
        }
        Err(error) => return Err(error),
    };
    let Member { member, grant, stream, request } = member;
    let tree = member.map(|member| match (opened, &context.job) {
        (Some(AtRank(Some((links, alarm)))), Some(job)) => {
            let terms = terms(context, grant.osos, stream);
            let request = GroupRequest {
                osos: grant.osos,
                stream: terms.stream,
                external_receiver: grant.external_receiver.is_some(),
                ..request
            };
            FailoverTree::new(member, links, terms, ask(context, job, request), alarm)
        }
        _ => FailoverTree::without_fallback(member),
    });
    Ok(Prepared { tree, without })
}

/// Opens links that carry all until the manager grants what is requested; none where rank 0 wants none.
pub(super) fn await_tree(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    request: GroupRequest,
) -> Result<Option<AtRank<FailoverTree>>, Unavailable> {
    let opened = open(context, bootstrap, placement)?;
    let (Some(AtRank(opened)), Some(job)) = (opened, &context.job) else { return Ok(None) };
    let terms = terms(context, request.osos, None);
    let request = ask(context, job, request);
    let tree = |(links, alarm)| FailoverTree::awaiting_tree(links, terms, request, alarm);
    Ok(Some(AtRank(opened.map(tree))))
}

/// What leaders have; none at other ranks.
pub(super) struct AtRank<T>(pub(super) Option<T>);

/// Links, and what wakes their leader.
type Opened = AtRank<(DirectLinks, Arc<Alarm>)>;

/// Links and alarms at leaders; none where rank 0 wants none.
fn open(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
) -> Result<Option<Opened>, Unavailable> {
    let mut is_wanted = [u8::from(context.settings.failover == Switch::On)];
    bootstrap.broadcast(0, &mut is_wanted)?;
    if is_wanted == [0] {
        return Ok(None);
    }
    let alarm = placement.is_leader().then(Alarm::new).transpose();
    let alarm = agree(bootstrap, alarm.map_err(|error| error.to_string()))?;
    let links = direct::open_links(context, bootstrap, placement)?;
    Ok(Some(AtRank(links.zip(alarm))))
}

/// What every tree of the communicator has to offer.
fn terms(context: &Context, osos_max: u16, stream: Option<StreamUse>) -> Terms {
    let settings = &context.settings;
    Terms {
        approach: approach_of(settings),
        machine: context.machine.clone(),
        stream_min_bytes: stream.map(|stream| stream.min_bytes),
        stream: stream.map(|stream| stream.terms),
        osos_max,
    }
}

/// Lines about grants that were not written.
static UNTOLD: LineLimit = LineLimit::new();

/// How host 0 asks for a group, whose results can be read where those of the first could, or were to be.
fn ask(context: &Context, job: &Job, request: GroupRequest) -> Request {
    let job = job.clone();
    let path = context.settings.external_receiver.clone();
    Arc::new(move || {
        let grant = job.request_group(&request).map_err(|error| error.to_string())?;
        let told = path.as_deref().map_or(Ok(()), |path| write_grant(&grant, path));
        if let Err(problem) = told
            && let Some(remark) = UNTOLD.judge(Instant::now()).remark()
        {
            // The job is worth more than who reads along.
            let _ = writeln!(
                io::stderr().lock(),
                "tributary: `tributary listen` can't follow the job to its next tree: {problem}{remark}"
            );
        }
        Ok(grant)
    })
}
