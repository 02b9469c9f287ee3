//! How leaders take their places in the aggregation tree.

use serde::{Deserialize, Serialize};
use tributary_wire::control::{GroupGrant, GroupRequest};

use super::agreement::{Unavailable, agree};
use super::approach::approach_of;
use super::failover::{self, Prepared};
use super::request::group_request;
use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::context::Context;
use crate::engine::StreamUse;
use crate::external_receiver::write_grant;
use crate::job::Job;
use crate::placement::Placement;
use tributary_inter_host::{FailoverTree, TreeMember};
use tributary_selection::Decision;

/// A communicator's place in the tree.
pub(super) struct Joined {
    /// At leaders.
    pub(super) tree: Option<FailoverTree>,
    /// Why nothing takes over when the tree is lost; none if something does, or nothing is wanted.
    pub(super) without_failover: Option<String>,
    /// What the group streams; none if it streams nothing.
    pub(super) stream: Option<StreamUse>,
    /// What carries data between leaders and the tree, for the report.
    pub(super) carriers: String,
    /// Whether its aggregators took short segments inside the kernel when it was granted.
    pub(super) in_kernel: bool,
    /// Why there is no tree yet; none if there is one.
    pub(super) lacking: Option<String>,
}

/// Asks for a group and takes its places. Long vectors are streamed as the decision says, if the group may stream. If there is no
/// tree now but may be one later, links carry all until then, where the decision lets them.
pub(super) fn join(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    label: &str,
    decision: &Decision,
) -> Result<Joined, Unavailable> {
    let may_wait = decision.falls_back;
    let external_receiver = context.takes_external_receiver();
    if decision.sums_exactly() {
        agree(bootstrap, refuse_external_receiver(external_receiver))?;
    }
    let request = GroupRequest { external_receiver, ..group_request(context, placement, label) };
    let grant = match request_group(context, bootstrap, placement, &request)? {
        Answer::Granted(grant) => grant,
        Answer::Later(problem) if may_wait => {
            return await_tree(context, bootstrap, placement, request, problem);
        }
        Answer::Later(problem) | Answer::No(problem) => {
            return Err(Unavailable::NotGranted(problem));
        }
    };
    let stream = decision.stream_min_bytes.zip(grant.stream);
    let stream = stream.map(|(min_bytes, terms)| StreamUse { min_bytes, terms });
    let member = match enter(context, bootstrap, placement, &grant, stream) {
        Err(Unavailable::Rank { rank, problem }) if may_wait => {
            let problem = format!("rank {rank}: {problem}");
            return await_tree(context, bootstrap, placement, request, problem);
        }
        entered => entered?,
    };
    let path = context.settings.external_receiver.as_deref().filter(|_| bootstrap.rank() == 0);
    agree(bootstrap, path.map_or(Ok(()), |path| write_grant(&grant, path)))?;
    let carrier = member.as_ref().map(TreeMember::carrier).unwrap_or_default();
    let carriers = allgather_texts(bootstrap, &carrier)?;
    let leaders = placement.leaders.iter().map(|rank| carriers[*rank as usize].as_str());
    let carriers = summary(&leaders.collect::<Vec<_>>(), &placement.hosts);
    let member = failover::Member { member, grant: &grant, stream, request };
    let Prepared { tree, without } = failover::prepare(context, bootstrap, placement, member)?;
    let in_kernel = grant.in_kernel;
    Ok(Joined { tree, without_failover: without, stream, carriers, in_kernel, lacking: None })
}

/// Exact sums travel as integers, which an external receiver would get. The settings refuse both for all communicators; this one
/// was made with sums of its own.
fn refuse_external_receiver(is_wanted: bool) -> Result<(), String> {
    if is_wanted {
        return Err("its sums are exact, which excludes TRIBUTARY_EXTERNAL_RECEIVER".to_owned());
    }
    Ok(())
}

/// Opens links that carry all until there is a tree, of which `problem` says why there is none.
fn await_tree(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    request: GroupRequest,
    problem: String,
) -> Result<Joined, Unavailable> {
    // What would be streamed is not known before there is a grant.
    let request = GroupRequest { stream: None, ..request };
    let tree = failover::await_tree(context, bootstrap, placement, request)?;
    let Some(tree) = tree else { return Err(Unavailable::NotGranted(problem)) };
    Ok(Joined {
        tree: tree.0,
        without_failover: None,
        stream: None,
        carriers: "links until there is a tree".to_owned(),
        in_kernel: false,
        lacking: Some(problem),
    })
}

/// What carries the hosts' data, in a few words.
fn summary(carriers: &[&str], hosts: &[String]) -> String {
    let count = |name: &&str| carriers.iter().filter(|carrier| *carrier == name).count();
    // Of two that are equally many, the one that the first host has.
    let most = carriers.iter().copied().rev().max_by_key(count).unwrap_or_default();
    let mut others = carriers.iter().zip(hosts).filter(|(carrier, _)| **carrier != most);
    match (others.next(), others.count()) {
        (None, _) => most.to_owned(),
        (Some((carrier, host)), 0) => format!("{most}, but {carrier} at {host}"),
        (Some((carrier, host)), more) => {
            format!("{most}, but {carrier} at {host} and {more} more hosts differ")
        }
    }
}

/// What came of a request for a group.
#[derive(Serialize, Deserialize)]
enum Answer {
    Granted(Box<GroupGrant>),
    /// There is none, and may be one later.
    Later(String),
    /// There will be none.
    No(String),
}

/// Rank 0 asks for a group on behalf of all leaders.
fn request_group(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    request: &GroupRequest,
) -> Result<Answer, Unavailable> {
    let hosts = placement.hosts.len() as u32;
    let Some(job) = &context.job else {
        return match context.without_manager() {
            Some(problem) => Ok(Answer::No(problem.to_owned())),
            None => Err(Unavailable::NoManager { hosts }),
        };
    };
    let answer = (bootstrap.rank() == 0).then(|| ask(context, job, request));
    let text = serde_json::to_string(&answer).expect("a grant is plain data");
    let text = broadcast_text(bootstrap, 0, &text)?;
    let answer: Option<Answer> = serde_json::from_str(&text)
        .map_err(|_| BootstrapError("the group's grant arrived damaged".to_owned()))?;
    match answer {
        Some(Answer::Granted(grant)) if grant.endpoints.len() != placement.hosts.len() => {
            Ok(Answer::No("the manager granted another number of places".to_owned()))
        }
        Some(answer) => Ok(answer),
        None => Err(BootstrapError("the group's grant did not arrive".to_owned()).into()),
    }
}

fn ask(context: &Context, job: &Job, request: &GroupRequest) -> Answer {
    // A manager that was away when the job started is asked in the background: nobody waits for it once more.
    if let Some(problem) = context.without_manager().filter(|_| job.admission().is_none()) {
        return Answer::Later(problem.to_owned());
    }
    // What an external receiver is to read is not streamed: aggregators hold a stream's results only
    // until all members have them.
    let stream = request.stream.filter(|_| !request.external_receiver);
    let request = GroupRequest { stream, ..request.clone() };
    match job.request_group(&request) {
        Ok(grant) => Answer::Granted(Box::new(grant)),
        Err(error) if error.may_pass() => Answer::Later(error.to_string()),
        Err(error) => Answer::No(error.to_string()),
    }
}

/// Leaders take their places.
fn enter(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    grant: &GroupGrant,
    stream: Option<StreamUse>,
) -> Result<Option<TreeMember>, Unavailable> {
    let settings = &context.settings;
    let approach = approach_of(settings);
    let stream_min_bytes = stream.map(|stream| stream.min_bytes);
    let entered = placement.is_leader().then(|| {
        TreeMember::enter(grant, placement.host(), &approach, &context.machine, stream_min_bytes)
    });
    agree(bootstrap, entered.transpose().map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_the_first_host_that_differs() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(summary(&["udp"; 3], &hosts), "udp");
        assert_eq!(summary(&["udp", "tcp", "udp"], &hosts), "udp, but tcp at b");
        let hosts = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let many = summary(&["tcp", "udp", "tcp", "udp", "udp"], &hosts);
        assert_eq!(many, "udp, but tcp at a and 1 more hosts differ");
    }
}
