//! A job's state: its lease, the groups that it wants, and those that it was granted.

use tributary_manager::GroupError;
use tributary_protocol_testing::values::TreeShape;
use tributary_wire::control::{GroupGrant, JobAdmission, JobPlace};

use super::fault_record::Key;
use super::scenario::{GroupPlan, JobPlan};

/// A job.
pub(super) struct JobRun {
    pub(super) groups: Vec<Want>,
    /// The manager's life in which it was admitted, and the admission.
    pub(super) lease: Option<(u32, JobAdmission)>,
    /// The place that it was given first.
    pub(super) place: Option<JobPlace>,
    /// How many leases it has had.
    pub(super) leases: u32,
    pub(super) is_being_admitted: bool,
    /// It lost a process, and its launcher will end it.
    pub(super) is_doomed: bool,
    pub(super) is_over: bool,
}

/// One of a job's groups, over all its rounds and attempts.
pub(super) struct Want {
    pub(super) state: WantState,
    pub(super) rounds_left: u32,
    pub(super) attempts: u32,
    /// Attempts that failed because other groups had what it needs.
    pub(super) waits: u32,
    pub(super) attempt: u32,
    pub(super) answer: Option<Result<u32, GroupError>>,
    pub(super) last_refusal: Option<String>,
    /// The communicator that goes on without a tree while it is requested again.
    pub(super) communicator: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantState {
    /// Nothing is under way; it will be requested.
    Idle,
    Requested,
    Running(u32),
    Done,
    /// No system of this size can grant it.
    Impossible,
    /// It was refused in every attempt.
    Starved,
}

/// One granted group.
pub(super) struct Run {
    pub(super) key: Key,
    pub(super) job: u32,
    pub(super) group: u32,
    pub(super) tag: u64,
    pub(super) grant: GroupGrant,
    pub(super) shape: TreeShape,
    /// Its members, as indices into the world's table, by endpoint; none before the grant has
    /// reached the job.
    pub(super) members: Vec<u32>,
    /// The expected result of each operation, once it was computed.
    pub(super) expected: Vec<Option<Expected>>,
    /// The communicator whose trees it is one of, if that outlives it.
    pub(super) communicator: Option<u32>,
    /// The first operation on which members disagree.
    pub(super) disputed: Option<usize>,
    pub(super) is_over: bool,
}

/// The expected result of an operation.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) bytes: Vec<u8>,
    /// Whether it says what it means, as far as that can be told.
    pub(super) is_sound: bool,
}

impl JobRun {
    pub(super) fn new(plan: &JobPlan) -> Self {
        let want = |group: &GroupPlan| Want {
            state: WantState::Idle,
            rounds_left: group.rounds,
            attempts: 0,
            waits: 0,
            attempt: 0,
            answer: None,
            last_refusal: None,
            communicator: None,
        };
        Self {
            groups: plan.groups.iter().map(want).collect(),
            lease: None,
            place: None,
            leases: 0,
            is_being_admitted: true,
            is_doomed: false,
            is_over: false,
        }
    }
}
