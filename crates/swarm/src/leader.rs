//! The state of leaders, of what they are doing, and of the direct links between them.

use std::collections::VecDeque;
use std::ops::Range;

use tributary_protocol::StreamTerms;
use tributary_protocol::failover::boundaries::Boundaries;
use tributary_protocol::failover::settler::Settler;
use tributary_protocol::failover::{Cut, Step};
use tributary_protocol_testing::workload::OperationPlan;
use tributary_wire::frame::Abort;
use tributary_wire::{OperationNumber, Operator};

use super::fault_record::Key;

/// What one group's plan comes to over all its trees.
pub(super) struct Communicator {
    /// Its first group.
    pub(super) key: Key,
    pub(super) job: u32,
    pub(super) group: u32,
    pub(super) tag: u64,
    pub(super) leaders: Vec<Leader>,
    pub(super) direct: Direct,
    /// The result of each operation, from the first leader that has it.
    pub(super) results: Vec<Option<Vec<u8>>>,
    /// All have joined the first tree.
    pub(super) is_open: bool,
    /// At leader 0: a group that was granted, and when.
    pub(super) granted: Option<(u32, u64)>,
    /// The operation after which all leave; none before all are in a tree with their scripts done.
    pub(super) last: Option<usize>,
    /// No tree will be granted any more.
    pub(super) is_treeless: bool,
    pub(super) window: u16,
    pub(super) stream: Option<StreamTerms>,
    /// Something other than a tree is lost, which may end it.
    pub(super) has_cause: bool,
    /// Its leaders have all ended. The group's next round is another communicator.
    pub(super) is_over: bool,
}

/// One leader.
pub(super) struct Leader {
    pub(super) host: u32,
    pub(super) job: u32,
    /// Its place in the present tree, or the one that was lost.
    pub(super) member: u32,
    /// The place that it takes in the next one.
    pub(super) entering: Option<u32>,
    pub(super) course: Course,
    /// Trees lost so far.
    pub(super) lost: u32,
    pub(super) collective: Option<Collective>,
    pub(super) ongoing: Option<Ongoing>,
    pub(super) retained: Option<Tail>,
    pub(super) completed: usize,
    pub(super) is_start_put: bool,
    pub(super) end: Option<Ending>,
}

/// How a leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Left,
    Failed,
    Dead,
}

pub(super) enum Course {
    InTree,
    Settling { settler: Settler, doing: Doing },
    OverLinks { boundaries: Boundaries, doing: Doing },
}

/// An operation under way. The result comes where the contribution lies, as with `MPI_IN_PLACE`.
pub(super) struct Ongoing {
    pub(super) index: usize,
    pub(super) plan: OperationPlan,
    pub(super) vector: Vec<u8>,
    pub(super) is_stream: bool,
    pub(super) ready_bytes: usize,
    /// What the endpoint of the present tree calls it, and how it is cut there.
    pub(super) in_tree: Option<(OperationNumber, Cut)>,
}

/// What a leader keeps of the operation that it completed last in its tree.
pub(super) struct Tail {
    pub(super) number: OperationNumber,
    pub(super) plan: OperationPlan,
    pub(super) cut: Cut,
    pub(super) bytes: Vec<u8>,
}

impl Communicator {
    /// Whether all its leaders completed all they wanted.
    pub(super) fn is_done(&self) -> bool {
        self.leaders.iter().all(|it| {
            it.end == Some(Ending::Left) && self.last.is_some_and(|last| it.completed == last + 1)
        })
    }

    /// How many operations its leaders run.
    pub(super) fn operations(&self) -> usize {
        self.last.map_or(usize::MAX, |last| last + 1)
    }
}

impl Leader {
    /// Whether its place in a tree carries its operations.
    pub(super) fn is_in_tree(&self) -> bool {
        matches!(self.course, Course::InTree)
    }

    pub(super) fn is_settling(&self) -> bool {
        matches!(self.course, Course::Settling { .. })
    }

    pub(super) fn is_entering(&self) -> bool {
        self.entering.is_some()
    }

    pub(super) fn is_entering_as(&self, member: u32) -> bool {
        self.entering == Some(member)
    }

    /// The job and host whose process it is in.
    pub(super) fn process(&self) -> (u32, u32) {
        (self.job, self.host)
    }

    pub(super) fn completed_operations(&self) -> usize {
        self.completed
    }
}

impl Ongoing {
    /// Whether a part of a stream is still to become ready.
    pub(super) fn has_more_to_come(&self) -> bool {
        self.is_stream && self.ready_bytes < self.plan.len_bytes()
    }

    pub(super) fn is_reduction_to(&self) -> Option<u32> {
        reduction_to(&self.plan)
    }
}

/// The only member that gets an operation's result, if there is one.
pub(super) fn reduction_to(plan: &OperationPlan) -> Option<u32> {
    let is_reduction = !matches!(plan.operator, Operator::Barrier | Operator::Broadcast);
    plan.target.member().filter(|_| is_reduction).map(|member| member.0)
}

/// What a leader's collective, or its wait for a stream's bytes, is for.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    Nothing,
    /// In a settlement.
    Call,
    Exchange,
    Supply {
        from: u32,
        step: Step,
    },
    RedoFromTail,
    /// At a boundary.
    Announce,
    Grant,
    Places,
    /// A part of the operation's own vector; none while it is not ready.
    Part {
        parts: Parts,
        part: Option<Range<usize>>,
    },
}

/// A range of a vector that goes part by part, because its bytes become ready so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) done: usize,
    pub(super) end: usize,
    pub(super) part_bytes: usize,
}

/// What leaders say to each other.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A message of the collective with this number.
    Part { collective: u32, bytes: Vec<u8> },
    /// The sender has failed.
    Failed(Abort),
    /// The link ends.
    Closed,
}

/// All direct links of a communicator.
pub(super) struct Direct {
    pub(super) leaders: usize,
    /// By sender and receiver: what is on its way, and when the last of it arrives.
    pub(super) wires: Vec<(VecDeque<Message>, u64)>,
    /// By receiver and sender.
    pub(super) inboxes: Vec<Inbox>,
    /// Collectives begun, by leader.
    pub(super) begun: Vec<u32>,
}

/// A collective under way at one leader.
pub(super) struct Collective {
    pub(super) number: u32,
    pub(super) kind: Kind,
    /// This leader's part, and the result in the end.
    pub(super) bytes: Vec<u8>,
    /// At the leader that combines: what each of the others brings.
    pub(super) brought: Vec<Option<Vec<u8>>>,
}

/// What a collective does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// One leader gives its bytes to all others.
    Spread { from: u32 },
    /// Everybody's bytes come together at one leader; then all get them, if they are for all.
    Gather { at: u32, how: How, is_for_all: bool },
}

/// How bytes come together.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Or,
    As(OperationPlan),
}

impl Direct {
    pub(super) fn new(leaders: usize) -> Self {
        Self {
            leaders,
            wires: vec![(VecDeque::new(), 0); leaders * leaders],
            inboxes: vec![vec![VecDeque::new(); leaders]; leaders],
            begun: vec![0; leaders],
        }
    }
}

/// Messages that have arrived from each of the others.
pub(super) type Inbox = Vec<VecDeque<Message>>;
