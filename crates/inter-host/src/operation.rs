//! What the leaders of different hosts meet through: one trait over the aggregation tree and direct
//! links.
//!
//! Owns the contract between the engine, which runs operations, and the two methods, which carry them
//! between hosts. Knows neither.

use std::time::Duration;

use tributary_algorithms::{Algorithm, Collective, CollectiveKind, Order};
use tributary_shm_collectives::{Blocks, Combine, PeerCheck, Waiter};
use tributary_tuning::Method;
use tributary_wire::frame::{Abort, AbortReason, Disagreement};
use tributary_wire::{Datatype, Operator};

/// One collective between the leaders of hosts, as one leader sees it.
#[derive(Clone, Copy)]
pub struct InterHostOperation {
    /// Its root, if it has one, is a host.
    pub collective: Collective,
    /// The collective of the program that this is a part of. Hosts have to agree on that, too: parts of different ones may
    /// look alike.
    pub called: CollectiveKind,
    /// The root of that collective, a rank; 0 if it has none. Hosts have to agree on this, too: `collective` names the host
    /// only, which may have the root of one rank and that of another.
    pub root_called: u32,
    /// How elements combine.
    pub operator: Operator,
    /// What an element is.
    pub datatype: Datatype,
    /// Length of the vector.
    pub elements: u64,
    /// Size of an element: that of the datatype, but for operators of the caller's own. Those have the
    /// operator and the datatype of a broadcast.
    pub element_bytes: usize,
    /// In which order the hosts' contributions may be combined.
    pub order: Order,
    /// Which elements are whose host's part, in a reduce-scatter or an allgather; one for each host.
    pub parts: Blocks,
    /// For reductions.
    pub kernel: Option<&'static dyn Combine>,
    /// Which host algorithm direct links take. The tree has no choice.
    pub algorithm: Algorithm,
    /// This host's contribution; it may lie in the target already. In an allgather it does, at its place,
    /// and the tree's combines the hosts' vectors: then the rest of each is zero, and the operator a
    /// bitwise or.
    pub source: *const u8,
    /// Room for the whole vector: for the result, and for partial ones where direct links need them
    /// ([`needs_target`]).
    pub target: *mut u8,
}

// SAFETY: the pointers are followed only while the operation runs, whose buffers its caller has promised to
// every thread ([`InterHost::start`]).
unsafe impl Send for InterHostOperation {}

/// Length of the parts in which a stream is reduced and spread inside hosts, and carried between them where
/// there is no tree: half a window of its segments.
#[must_use]
pub fn stream_part_bytes(segment_bytes: usize, window: u16) -> usize {
    segment_bytes * usize::from(window / 2).max(1)
}

/// Whether a method needs room for the vector at a leader that gets no result: host algorithms combine
/// partial results wherever they pass.
pub fn needs_target(method: Method) -> bool {
    method == Method::Direct
}

impl InterHostOperation {
    /// No hosts' vectors, but the hosts' meeting.
    pub const BARRIER: Self = Self {
        collective: Collective::Barrier,
        called: CollectiveKind::Barrier,
        root_called: 0,
        operator: Operator::Barrier,
        datatype: Datatype::U8,
        elements: 0,
        element_bytes: 1,
        order: Order::Any,
        parts: Blocks::Even,
        kernel: None,
        algorithm: Algorithm::Dissemination,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };

    /// Length of the vector in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elements as usize * self.element_bytes
    }

    /// A digest of what hosts must call alike, and of all that they called before. Order counts: every bit reaches the
    /// highest.
    pub(crate) fn digest_after(&self, history: u64) -> u64 {
        let &Self { collective, called, operator, datatype, elements, element_bytes, .. } = self;
        let [a, b, c, d] = self.root_called.to_le_bytes();
        let codes = [called as u8, operator.code(), datatype.code(), 0, a, b, c, d];
        let place =
            u64::from(collective.root().unwrap_or(0)) << 8 | u64::from(collective.kind() as u8);
        let words = [u64::from_le_bytes(codes), elements, element_bytes as u64, place];
        words.into_iter().fold(history, |digest, word| {
            let digest = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            digest ^ digest >> 32
        })
    }
}

/// How leaders of different hosts carry one operation after the other.
pub trait InterHost {
    /// Starts an operation. The one before it is over.
    ///
    /// # Errors
    /// If the group of leaders has failed.
    ///
    /// # Safety
    /// The operation's buffers and parts stay valid, and nobody else uses them, until [`poll`](Self::poll) has
    /// said that the operation is over, or has failed.
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort>;

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    ///
    /// # Errors
    /// If the group of leaders has failed.
    fn poll(&mut self) -> Result<bool, Abort>;

    /// Whether the next [`poll`](Self::poll) has nothing to do, as far as one cheap system call tells. A
    /// method without such a call says `false`.
    fn has_nothing_yet(&mut self) -> bool {
        false
    }

    /// Sleeps until the operation may go on, or for `time`.
    fn sleep(&mut self, time: Duration);

    /// Looks for a failed host among those that the operation does not wait for. The next
    /// [`poll`](Self::poll) reports it.
    fn check(&mut self);

    /// Whether the rest of the operation needs this process only to fetch the result.
    fn completes_without_polling(&mut self) -> bool {
        false
    }

    /// The host that an abort of this method blames, by its number in the communicator.
    fn host_at_fault(&self, abort: &Abort) -> Option<usize>;

    /// What two hosts called, by their numbers in the communicator, if the group has failed because they did not call the
    /// same and this method can tell.
    fn disagreement(&self) -> Option<Disagreement> {
        None
    }

    /// Tells the other hosts that this one can't go on.
    fn abort(&mut self, reason: AbortReason);

    /// Leaves the group of leaders. Others may have operations to finish.
    fn leave(&mut self);

    /// Lets a little time pass: yields, polling cheaply, or sleeps for `sleep_max` at most.
    fn pause(&mut self, waiter: &mut Waiter, sleep_max: Duration) {
        if waiter.yields_next() {
            waiter.yield_while(|| self.has_nothing_yet());
        } else if waiter.pause(|time| self.sleep(time.min(sleep_max))) == PeerCheck::Full {
            self.check();
        }
    }
}
