//! Why the manager refuses a request or an event.

use alloc::string::{String, ToString};
use core::fmt;

use tributary_topology::GroupTreeError;
use tributary_wire::control::{Refusal, RefusalCode};
use tributary_wire::frame::Versions;
use tributary_wire::{GroupId, JobId, NodeId};

use super::holders::Holders;

/// Why an aggregator was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The manager is full.
    #[error("the manager serves {max} aggregation nodes already, which is its limit")]
    TooManyNodes {
        /// The limit.
        max: u32,
    },
    /// A living aggregator has the name.
    #[error("an aggregation node called `{name}` is registered already; names must differ")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A text is empty or too long.
    #[error("the aggregation node's {field} has {got_bytes} bytes, allowed are 1 to {max_bytes}")]
    Text {
        /// Which text.
        field: &'static str,
        /// Its length.
        got_bytes: usize,
        /// Longest allowed.
        max_bytes: usize,
    },
    /// A capacity with which the aggregator could not serve any group.
    #[error("the aggregation node offers {field} {got}, it needs {min} at least")]
    Capacity {
        /// Which capacity.
        field: &'static str,
        /// What it offers.
        got: u32,
        /// Least that serves.
        min: u32,
    },
    /// No version of frames lies between those it names.
    #[error("the aggregation node names versions of frames from {} to {}", versions.oldest, versions.newest)]
    NoVersion {
        /// What it names.
        versions: Versions,
    },
    /// More network interfaces than a machine has.
    #[error("the aggregation node names {got} interfaces of its kernel path, allowed are {max}")]
    TooManyInterfaces {
        /// How many it names.
        got: usize,
        /// How many it may.
        max: usize,
    },
}

/// Why a job was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The manager is full.
    #[error(
        "the manager serves {max} jobs already, which is its limit; try again when one has ended"
    )]
    TooManyJobs {
        /// The limit.
        max: u32,
    },
    /// The tenant has as many jobs as it may have.
    #[error(
        "tenant `{tenant}` has {max} jobs already, which is its limit; try again when one of them has ended"
    )]
    TenantLimit {
        /// Its name.
        tenant: String,
        /// The limit.
        max: u32,
    },
    /// It wants a place that another job has.
    #[error("job {job} has another secret: a job that was admitted since has its number")]
    NumberTaken {
        /// The number.
        job: JobId,
    },
    /// It wants the place of a job that came with another token.
    #[error("job {job} came with another token, and goes on with that one alone")]
    OtherToken {
        /// The number.
        job: JobId,
    },
    /// It shows a secret that no manager of this operator gave its token for that number.
    #[error(
        "that is not the secret of job {job}: no manager with this operator's token gave it to a job of yours \
         (start the job anew if the operator's token was replaced, or its manager is of an older version)"
    )]
    NoProof {
        /// The number.
        job: JobId,
    },
    /// The name is too long.
    #[error("the job's name has {got_bytes} bytes, allowed are {max_bytes}")]
    Name {
        /// Its length.
        got_bytes: usize,
        /// Longest allowed.
        max_bytes: usize,
    },
}

/// Why an aggregator can't be drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// There is none of that name.
    #[error("no living aggregation node is called `{name}`")]
    UnknownNode {
        /// The name.
        name: String,
    },
}

/// Why a group was not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The job was never admitted, or has ended.
    #[error("job {job} is not admitted")]
    UnknownJob {
        /// The job.
        job: JobId,
    },
    /// The secret is not the job's.
    #[error("that is not the secret of job {job}")]
    WrongSecret {
        /// The job.
        job: JobId,
    },
    /// The job came with another token.
    #[error("job {job} came with another token, and gets groups with that one alone")]
    OtherToken {
        /// The job.
        job: JobId,
    },
    /// A number of the request is out of bounds.
    #[error("the request's {field} is {got}, allowed are {min} to {max}")]
    OutOfBounds {
        /// Which number.
        field: &'static str,
        /// What was asked for.
        got: u64,
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// The manager is full.
    #[error(
        "the manager holds {max} groups already, which is its limit ({holders}); try again when one has ended"
    )]
    TooManyGroups {
        /// The limit.
        max: u32,
        /// The jobs that have them.
        holders: Holders,
    },
    /// The tenant would hold more than it may.
    #[error(
        "tenant `{tenant}` needs {needs} of {resource}, of which it may hold {max} and has {has} left ({holders}); \
         they come free when a communicator of such a job is freed, or the job ends"
    )]
    TenantLimit {
        /// Its name.
        tenant: String,
        /// What it lacks.
        resource: TenantResource,
        /// What the group would cost.
        needs: u32,
        /// What is left.
        has: u32,
        /// The limit.
        max: u32,
        /// Its jobs that hold some.
        holders: Holders,
    },
    /// The job would hold more than one job may.
    #[error("job {job} needs {needs} outstanding operations, its quota has {has} left")]
    JobQuota {
        /// The job.
        job: JobId,
        /// What the group would cost.
        needs: u16,
        /// What is left.
        has: u32,
    },
    /// Every epoch was used; the manager must be restarted.
    #[error("the manager used every epoch; restart it")]
    EpochsUsedUp,
    /// No tree can carry the group.
    #[error(transparent)]
    Tree(#[from] GroupTreeError),
    /// An aggregator of the tree has too few free OSOs.
    #[error(
        "aggregation node `{node}` needs {needs} outstanding operations for this group, has {has} free \
         ({holders}); they come free when a communicator of such a job is freed, or the job ends"
    )]
    NodeExhausted {
        /// The aggregator.
        node: String,
        /// What the group would cost it.
        needs: u16,
        /// What it has free.
        has: u32,
        /// Jobs that hold some.
        holders: Holders,
    },
    /// An aggregator of the tree speaks no version of frames that the job and the other aggregators speak.
    #[error(
        "aggregation node `{node}` speaks version {spoken} of frames, the job and the other nodes {others}: \
         upgrade what is older"
    )]
    NoCommonVersion {
        /// The aggregator's name.
        node: String,
        /// What it speaks.
        spoken: Versions,
        /// What the job and the aggregators before it speak.
        others: Versions,
    },
    /// An aggregator of the tree would not install the group.
    #[error("aggregation node `{node}` refused the group: {reason}")]
    NodeRefused {
        /// The aggregator.
        node: String,
        /// What it said.
        reason: String,
    },
    /// An aggregator of the tree failed the group.
    #[error("the group failed at aggregation node `{node}`: {reason}")]
    NodeFailed {
        /// The aggregator.
        node: String,
        /// What it said.
        reason: String,
    },
    /// An aggregator of the tree did not answer in time.
    #[error("aggregation node `{node}` did not answer in time")]
    NodeSilent {
        /// The aggregator.
        node: String,
    },
    /// An aggregator of the tree died.
    #[error("aggregation node `{node}` died")]
    NodeGone {
        /// The aggregator.
        node: String,
    },
    /// An aggregator of the tree is about to be stopped.
    #[error("aggregation node `{node}` is being drained")]
    NodeDrained {
        /// The aggregator.
        node: String,
    },
    /// The job ended before its group stood.
    #[error("job {job} ended")]
    JobEnded {
        /// The job.
        job: JobId,
    },
}

/// Something of which a tenant may hold so much.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantResource {
    /// Groups.
    Groups,
    /// Outstanding operations on one aggregation node.
    Osos {
        /// The aggregator.
        node: String,
    },
}

impl fmt::Display for TenantResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups => f.write_str("its groups"),
            Self::Osos { node } => {
                write!(f, "its outstanding operations on aggregation node `{node}`")
            }
        }
    }
}

/// Why an aggregator's event was refused. The aggregator is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// No living aggregator has that number.
    #[error("aggregation node {node} is not registered")]
    UnknownNode {
        /// The number.
        node: NodeId,
    },
    /// The aggregator is not part of the group.
    #[error("aggregation node {node} names group {group}, of which it is not a part")]
    NotAMember {
        /// The aggregator.
        node: NodeId,
        /// The group.
        group: GroupId,
    },
    /// The event does not follow from the aggregator's orders and earlier events.
    #[error("aggregation node {node} says unexpectedly that group {group} is {event}")]
    Unexpected {
        /// The aggregator.
        node: NodeId,
        /// The group.
        group: GroupId,
        /// What it says.
        event: &'static str,
    },
}

impl RegisterError {
    /// What kind of refusal it is over HTTP.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::TooManyNodes { .. } => RefusalCode::LimitReached,
            Self::NameTaken { .. } => RefusalCode::NameTaken,
            Self::Text { .. }
            | Self::Capacity { .. }
            | Self::NoVersion { .. }
            | Self::TooManyInterfaces { .. } => RefusalCode::BadRequest,
        }
    }
}

impl AdmitError {
    /// What kind of refusal it is over HTTP.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::TooManyJobs { .. } | Self::TenantLimit { .. } => RefusalCode::LimitReached,
            Self::OtherToken { .. } | Self::NoProof { .. } => RefusalCode::Forbidden,
            Self::Name { .. } => RefusalCode::BadRequest,
            Self::NumberTaken { .. } => RefusalCode::NameTaken,
        }
    }
}

impl DrainError {
    /// What kind of refusal it is over HTTP.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::UnknownNode { .. } => RefusalCode::NotFound,
        }
    }
}

impl GroupError {
    /// What kind of refusal it is over HTTP.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::UnknownJob { .. } | Self::JobEnded { .. } => RefusalCode::NotFound,
            Self::WrongSecret { .. } | Self::OtherToken { .. } => RefusalCode::Forbidden,
            Self::OutOfBounds { .. } => RefusalCode::BadRequest,
            Self::TooManyGroups { .. }
            | Self::TenantLimit { .. }
            | Self::JobQuota { .. }
            | Self::EpochsUsedUp => RefusalCode::LimitReached,
            Self::NodeExhausted { .. }
            | Self::NodeRefused { .. }
            | Self::Tree(GroupTreeError::RadixExceeded { .. }) => RefusalCode::NodeExhausted,
            Self::Tree(_) | Self::NoCommonVersion { .. } => RefusalCode::NoTree,
            Self::NodeFailed { .. }
            | Self::NodeSilent { .. }
            | Self::NodeGone { .. }
            | Self::NodeDrained { .. } => RefusalCode::NodeSilent,
        }
    }
}

impl EventError {
    /// What kind of refusal it is over HTTP.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::UnknownNode { .. } => RefusalCode::NotFound,
            _ => RefusalCode::BadRequest,
        }
    }
}

macro_rules! into_refusal {
    ($($error:ty),+) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                Self { code: error.code(), message: error.to_string() }
            }
        }
    )+};
}

into_refusal!(RegisterError, DrainError, AdmitError, GroupError, EventError);
