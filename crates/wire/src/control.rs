//! The manager's HTTP interface: what its JSON bodies hold. Paths and meaning: `docs/control.md`.
//!
//! Two requests stay open as streams of one JSON value a line, so that a process that dies gives
//! back what it held when the kernel closes its socket: [`NodeRegistration`] (answered by
//! [`NodeOrder`]s) and [`JobRequest`] (answered by one [`JobAdmission`], then silence).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::frame::{Version, Versions};
use crate::{
    Capability, ChildIndex, EndpointId, Epoch, FrameKey, GroupId, JobId, NodeId, StreamTerms,
    TreeId,
};

/// Where an aggregation node takes links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// `ip:port` of its TCP listener.
    pub tcp: String,
    /// The machine it runs on; a peer on the same machine may use `shm`.
    pub machine: String,
    /// Path of the Unix socket on which it hands out shared-memory rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<String>,
}

/// An aggregation node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRegistration {
    /// Its name in the fabric description; unique among living aggregators.
    pub name: String,
    /// Where it takes links.
    pub address: NodeAddress,
    /// Children it can serve in one group.
    pub radix: u16,
    /// Outstanding operations it can hold at once, over all groups.
    pub osos: u32,
    /// The versions of frames that it speaks. Builds that do not say it are older.
    #[serde(default)]
    pub frame_versions: Versions,
    /// Longest segment it can hold, in bytes.
    pub payload_max_bytes: u32,
    /// What it can stream; none if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamCapacity>,
    /// Whether it takes short segments inside the kernel; none from aggregators of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelState>,
}

/// Whether an aggregator takes short segments inside the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelState {
    /// It was not asked for.
    Off,
    /// At these interfaces.
    At(Vec<String>),
    /// It was asked for and can't; why.
    Unavailable(String),
}

impl KernelState {
    /// Most children of an aggregator in a group whose segments it takes inside the kernel.
    pub const CHILDREN_MAX: usize = 16;
    /// Most segments in flight in such a group.
    pub const OSOS_MAX: u16 = 16;
}

/// The body of `POST /v1/nodes`: an aggregator, and what it has from the time of another manager, or from before it
/// lost its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOffer {
    /// The aggregator.
    #[serde(flatten)]
    pub registration: NodeRegistration,
    /// Its installed groups. What the manager does not want to take over, it orders to be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HeldGroup>,
}

/// An aggregator that holds nothing.
impl From<NodeRegistration> for NodeOffer {
    fn from(registration: NodeRegistration) -> Self {
        Self { registration, holds: Vec::new() }
    }
}

/// One aggregator's part of a group that is installed there, told to a manager that may not know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldGroup {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The version of its frames. Aggregators that do not say it are older.
    #[serde(default)]
    pub frame_version: Version,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment, in bytes.
    pub payload_max_bytes: u32,
    /// What it may stream; none if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamInstall>,
    /// As the manager that granted it wrote it.
    pub record: GroupRecord,
}

/// What a manager gives an aggregator to keep with a group, for a manager that comes after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The job that holds it.
    pub job: JobId,
    /// The job's name.
    pub job_name: String,
    /// Processes in the job.
    pub processes: u32,
    /// What the job calls the group.
    pub label: String,
    /// How far the aggregator is from the group's root; 0 there.
    pub level: u32,
    /// The name of the aggregator above it; none at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its children, in reduction order: names of aggregators and hosts.
    pub children: Vec<String>,
    /// The tenant whose job it is; none if it came with the operator's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// What an aggregator can stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCapacity {
    /// Trees that may stream on it, each with a lock and memory of its own.
    pub trees: u16,
    /// The widest terms that it can hold.
    #[serde(flatten)]
    pub terms_max: StreamTerms,
}

/// What a group may stream on its aggregators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInstall {
    /// The tree whose lock it takes.
    pub tree: TreeId,
    /// Its chunks.
    #[serde(flatten)]
    pub terms: StreamTerms,
}

/// A line of the answer to [`NodeRegistration`]: what the manager wants of the aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "orders are few, and gone as soon as they are read")]
pub enum NodeOrder {
    /// First line: the aggregator is registered under this number.
    Registered {
        /// The number, for the path of its events.
        node: NodeId,
    },
    /// Take part in a group; answered by [`NodeEvent::Installed`] or [`NodeEvent::Refused`].
    Install(GroupInstall),
    /// Drop a group, telling its children.
    Remove {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
    },
    /// Nothing: proof of life, five times a second.
    Tick,
}

/// One aggregator's part of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInstall {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The version of its frames. Managers that do not say it are older.
    #[serde(default)]
    pub frame_version: Version,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment, in bytes.
    pub payload_max_bytes: u32,
    /// Children in reduction order.
    pub children: Vec<ChildGrant>,
    /// The aggregator above; none at the root.
    pub parent: Option<ParentGrant>,
    /// What it may stream; none if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamInstall>,
    /// Where its results are multicast; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastGrant>,
    /// What a process outside the group has to show to get results; at the root, if there is to be
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_receiver: Option<Capability>,
    /// The keys of the group's frames; none where the fabric does not authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<GroupKeys>,
    /// What the aggregator tells another manager about the group. Managers that do not say it are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<GroupRecord>,
}

impl GroupInstall {
    /// What the aggregator has of the group once it is installed; none if the manager gave it no record.
    #[must_use]
    pub fn to_held_group(&self) -> Option<HeldGroup> {
        let &Self { group, epoch, frame_version, osos, payload_max_bytes, stream, .. } = self;
        let record = self.record.clone()?;
        Some(HeldGroup { group, epoch, frame_version, osos, payload_max_bytes, stream, record })
    }
}

/// The keys of a group's frames at one of its aggregators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupKeys {
    /// Those between members and aggregators.
    pub group: FrameKey,
    /// Those to and from the process outside the group, which must not be able to contribute; where
    /// there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_receiver: Option<FrameKey>,
}

/// A group's multicast address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastGrant {
    /// `ip:port` to which the group's root sends results.
    pub address: String,
    /// What such results show. It admits to nothing.
    pub capability: Capability,
}

/// A child of one aggregator in one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildGrant {
    /// What the child has to show.
    pub capability: Capability,
    /// The first member at or below it.
    pub members_first: EndpointId,
    /// One past the last member at or below it.
    pub members_end: EndpointId,
    /// Whether the child is an aggregation node. Managers that do not say so are older; their
    /// groups name a lost aggregator's members as lost.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_node: bool,
}

/// The way up from one aggregator in one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentGrant {
    /// Where the parent takes links.
    pub address: NodeAddress,
    /// This aggregator's place among the parent's children.
    pub child: ChildIndex,
    /// What this aggregator has to show there.
    pub capability: Capability,
}

/// `POST /v1/nodes/{node}/events`: what an aggregator has to say; the body is a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeEvent {
    /// The group's slots are reserved and its link upward stands.
    Installed {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
    },
    /// The group could not be installed; nothing of it is kept.
    Refused {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
        /// What the aggregator lacks.
        reason: String,
    },
    /// The group failed here; its members were told.
    Failed {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
        /// Why, for people.
        reason: String,
    },
    /// Every child has left; nothing of the group is kept.
    Ended {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
    },
    /// Nothing: proof of life, five times a second.
    Tick,
}

/// `POST /v1/nodes/{node}/waits`: what an aggregator's groups wait for; the body is a list of these, and stands for the
/// last one. Only waits that last are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupWait {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Which of the group's operations is waited for, from 1 on; none while members have yet to join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// For how long by now, in milliseconds.
    pub waited_ms: u64,
    /// Children whose part has not come; none of them if all have, and the aggregator above is waited for.
    pub missing: Vec<ChildIndex>,
}

/// `POST /v1/nodes/{node}/counts`: what an aggregator has done since it started, once a second. Every count only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Children's segments and chunks that went into a result.
    pub contributions: u64,
    /// Segments and chunks whose result was handed down.
    pub results: u64,
    /// Contributions that came again, and were not counted again.
    pub repeats: u64,
    /// Own requests sent to the parent again, because no answer came.
    pub sent_again: u64,
    /// Datagrams lost here: received and of no use, or not sent for want of room.
    pub dropped: u64,
    /// Payload in received frames, in bytes.
    pub payload_received_bytes: u64,
    /// Payload in sent frames, in bytes.
    pub payload_sent_bytes: u64,
    /// What it has done inside the kernel, which is in no other count; none if it can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelCounts>,
}

/// What an aggregator has done inside the kernel since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Groups that are served there now: the one number that also falls.
    pub groups: u64,
    /// Children's segments that were taken.
    pub taken: u64,
    /// Segments whose result was handed down.
    pub results: u64,
    /// Segments gathered there, and handed to the process to be folded; its results are the aggregator's.
    #[serde(default)]
    pub gathered: u64,
    /// Contributions that came again, and were not counted again.
    pub repeats: u64,
    /// Requests refused: a wrong capability, source or window.
    pub refused: u64,
    /// Requests dropped for their checksum.
    pub damaged: u64,
    /// Requests to those groups that were handed up to the process.
    pub passed: u64,
}

/// The answer to `POST /v1/page/codes`: lets one browser in, once and soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCode {
    /// What `GET /open?code=` takes.
    pub code: String,
}

/// `POST /v1/drain`: an aggregator is about to be stopped; its groups are to move away, and no more to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest {
    /// The aggregator's name.
    pub node: String,
}

/// The answer to [`DrainRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Groups that had to leave.
    pub groups: u32,
}

/// `POST /v1/jobs`: a job asks to be admitted. The answer stays open as long as the job lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// What to call it in `tributary status`.
    pub name: String,
    /// Processes in it.
    pub processes: u32,
    /// The place that it had, if it was admitted before: by a manager that is gone, or through a process that is
    /// gone. Every process of a job may hold its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<JobPlace>,
}

/// A job's place at a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlace {
    /// Its number.
    pub job: JobId,
    /// Its secret.
    pub secret: Capability,
}

/// The one line of the answer to [`JobRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAdmission {
    /// The job.
    pub job: JobId,
    /// What its processes have to show when they ask for groups.
    pub secret: Capability,
    /// Whether its processes authenticate the frames of direct links between hosts, under keys that
    /// they draw themselves.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub authenticate_frames: bool,
    /// Whether `GET /v1/tuning` gives measurements of the site.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub has_tuning: bool,
}

/// `POST /v1/jobs/{job}/groups`: a job asks for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRequest {
    /// The job's secret.
    pub secret: Capability,
    /// What to call it in `tributary tree`, such as the communicator's name.
    pub label: String,
    /// The host of each endpoint, one entry per endpoint. A host is a machine name, with `#i`
    /// behind it where one machine acts as several hosts.
    pub hosts: Vec<String>,
    /// The versions of frames that its processes speak. Builds that do not say it are older.
    #[serde(default)]
    pub frame_versions: Versions,
    /// Segments the job would like to have in flight.
    pub osos: u16,
    /// Longest segment the job would like, in bytes.
    pub payload_max_bytes: u32,
    /// Streams the job would like; none for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamTerms>,
    /// Whether a place is wanted for one process outside the group that results may go to.
    #[serde(default)]
    pub external_receiver: bool,
}

/// The answer to [`GroupRequest`]: every endpoint's way in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupGrant {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The version of its frames. Managers that do not say it are older.
    #[serde(default)]
    pub frame_version: Version,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment, in bytes.
    pub payload_max_bytes: u32,
    /// What the group may stream; none if nothing. No wider than was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamTerms>,
    /// Whether all its aggregators take its short segments inside the kernel. Managers that do not say it are older.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub in_kernel: bool,
    /// One per host of the request, in its order.
    pub endpoints: Vec<EndpointGrant>,
    /// Where its results are multicast; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<MulticastGrant>,
    /// The way in for a process outside the group, if one was asked for. The job hands it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_receiver: Option<Box<ExternalReceiverGrant>>,
    /// The key of the group's frames, except those in shared memory; none where the fabric does not
    /// authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<FrameKey>,
}

/// How a process outside a group comes to results: all that it needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalReceiverGrant {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The version of its frames. Managers that do not say it are older.
    #[serde(default)]
    pub frame_version: Version,
    /// Where the group's root takes links.
    pub address: NodeAddress,
    /// What to show there. It lets read, and nothing else.
    pub capability: Capability,
    /// Longest segment, in bytes: all segments of a vector but the last have as many whole elements
    /// as fit.
    pub payload_max_bytes: u32,
    /// The key of frames in both directions; none where the fabric does not authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<FrameKey>,
}

/// One endpoint's way into a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointGrant {
    /// Its number in the group.
    pub endpoint: EndpointId,
    /// Where its aggregation node takes links.
    pub address: NodeAddress,
    /// Its place among that aggregator's children.
    pub child: ChildIndex,
    /// What it has to show there.
    pub capability: Capability,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of refusal.
    pub code: RefusalCode,
    /// The party that lacks something, what it lacks, and what to do: one line for people.
    pub message: String,
}

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalCode {
    /// 401: no bearer token, or a wrong one.
    Unauthorized,
    /// 403: a job's secret is wrong, or the call needs another token.
    Forbidden,
    /// 400: the body is not what the path takes.
    BadRequest,
    /// 400: plain HTTP from another host; control connections are encrypted there.
    TlsRequired,
    /// 404: no such job, aggregator or group.
    NotFound,
    /// 409: a living aggregator already has the name, or another job the number.
    NameTaken,
    /// 409: no tree can carry the group.
    NoTree,
    /// 409: an aggregation node on the tree lacks outstanding operations or radix.
    NodeExhausted,
    /// 429: a limit of the tenant or of the manager is reached.
    LimitReached,
    /// 503: an aggregator did not answer an install in time, or died, failed or was drained meanwhile.
    NodeSilent,
}

/// `GET /v1/status`: the fabric now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Living aggregators.
    pub nodes: Vec<NodeStatus>,
    /// Admitted jobs.
    pub jobs: Vec<JobStatus>,
    /// Granted groups.
    pub groups: Vec<GroupStatus>,
    /// Tenants, and what they hold; none where only the operator's token is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantStatus>,
}

/// What one tenant holds of what it may hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Jobs that are admitted.
    pub jobs: Share,
    /// Groups, those that are being installed included.
    pub groups: Share,
    /// Outstanding operations on the aggregation node where it holds most.
    pub osos: Share,
    /// Groups that may stream.
    pub streams: Share,
}

/// How much is held, and how much may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Held now.
    pub used: u32,
    /// Most that may be held; none if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// One living aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// What it registered.
    pub registration: NodeRegistration,
    /// Outstanding operations that groups hold on it.
    pub osos_used: u32,
    /// It is about to be stopped, and gets no groups.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_draining: bool,
    /// The aggregator above it in the fabric's tree; none at its root.
    pub parent: Option<String>,
    /// What it has done, as it told last. Only `GET /v1/status` says it, to operators, and of aggregators that have
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<NodeCounts>,
}

/// One admitted job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Processes in it.
    pub processes: u32,
    /// Groups it holds.
    pub groups: u32,
    /// The tenant whose token it came with; none if that was the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// One granted group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The job that holds it.
    pub job: JobId,
    /// What the job calls it.
    pub label: String,
    /// Segments in flight at most.
    pub osos: u16,
    /// Its aggregation nodes, root first.
    pub nodes: Vec<GroupNodeStatus>,
    /// What it waits for, if that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingStatus>,
}

/// What holds a group up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// Which of its operations is waited for, from 1 on; none while members have yet to join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// For how long, in milliseconds.
    pub waited_ms: u64,
    /// Hosts whose part has not come.
    pub hosts: Vec<String>,
    /// Aggregators that have all from below, and whose part has not come: what lies between them and the next is slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// One aggregation node of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupNodeStatus {
    /// The aggregator's name.
    pub name: String,
    /// The name of the aggregator above it in the group; none at the root.
    pub parent: Option<String>,
    /// Its children, in reduction order: names of aggregators and hosts.
    pub children: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// What aggregators and managers sent before they agreed on versions of frames.
    #[test]
    fn a_peer_that_says_nothing_of_versions_speaks_the_one_before_they_were_said() {
        let node = r#"{"name":"n","address":{"tcp":"t","machine":"m"},"radix":2,"osos":3,"payload_max_bytes":4}"#;
        let node: NodeRegistration = serde_json::from_str(node).unwrap();
        assert_eq!(node.frame_versions, Versions { oldest: Version(2), newest: Version(2) });
        let install =
            r#"{"group":1,"epoch":2,"osos":3,"payload_max_bytes":4,"children":[],"parent":null}"#;
        let install: GroupInstall = serde_json::from_str(install).unwrap();
        assert_eq!(install.frame_version, Version(2));
        let grant = r#"{"group":1,"epoch":2,"osos":3,"payload_max_bytes":4,"endpoints":[]}"#;
        let grant: GroupGrant = serde_json::from_str(grant).unwrap();
        assert_eq!(grant.frame_version, Version(2));
    }

    /// What managers sent, and aggregators understood, before a child was said to be an aggregator.
    #[test]
    fn a_child_of_an_older_manager_is_a_member() {
        let old =
            format!(r#"{{"capability":"{}","members_first":3,"members_end":4}}"#, "07".repeat(16));
        let member = ChildGrant {
            capability: Capability::from_bytes([7; 16]),
            members_first: EndpointId(3),
            members_end: EndpointId(4),
            is_node: false,
        };
        assert_eq!(serde_json::from_str::<ChildGrant>(&old).unwrap(), member);
        assert_eq!(serde_json::to_string(&member).unwrap(), old, "older nodes read it");
        let node = ChildGrant { is_node: true, ..member };
        let said = serde_json::to_string(&node).unwrap();
        assert_eq!(said, old.replace('}', r#","is_node":true}"#));
        assert_eq!(serde_json::from_str::<ChildGrant>(&said).unwrap(), node);
    }
}
