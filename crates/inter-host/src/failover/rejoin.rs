//! The way back into a tree: the group asked for in the background at host 0, and the boundary between two
//! operations at which all hosts take their places together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tributary_algorithms::Algorithm;
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::Abort;

use super::pieces::{broadcast, gather_bits};
use crate::direct::DirectLinks;
use crate::operation::InterHost;
use crate::threads;

/// Asks the manager for a group of the same hosts. Waits for the answer.
pub type Request = Arc<dyn Fn() -> Result<GroupGrant, String> + Send + Sync>;

/// Pauses before the manager is asked again: the first, and the longest after doubling.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Nodes keep the places of a group for 10 s; a grant as old as this is not worth trying.
const GRANT_AGE_MAX: Duration = Duration::from_secs(8);

/// How much time there is between two boundaries, about: each costs an exchange.
const BOUNDARY_INTERVAL: Duration = Duration::from_millis(5);
/// Most operations between two boundaries.
const BOUNDARY_OPERATIONS_MAX: u32 = 1 << 10;

/// A request under way, and its grant.
#[derive(Default)]
struct Pending {
    is_wanted: bool,
    granted: Option<(GroupGrant, Instant)>,
}

/// When this host is next asked to take a place in a tree.
pub(super) struct Boundaries {
    /// Operations over links since the tree was lost.
    operations: u32,
    /// The operation before which the next boundary lies.
    due: u32,
    /// How many operations there were at the last one, and when that was.
    last: u32,
    since: Instant,
    /// At host 0.
    pending: Option<Arc<Mutex<Pending>>>,
    request: Request,
}

/// A boundary that is gone through.
pub(super) struct Boundary {
    phase: Phase,
    memory: Vec<u8>,
}

enum Phase {
    /// Host 0 says how long its grant is, and where the next boundary lies.
    Announce,
    /// The grant.
    Grant,
    /// Whether every host has its place.
    Confirm,
}

/// What host 0 announces: two numbers, little-endian.
const ANNOUNCEMENT_BYTES: usize = 8;

/// What comes of a step at a boundary.
pub(super) enum AtBoundary {
    Waiting,
    /// This host shall take its place by this grant, and then [`Boundary::confirm`] whether it did.
    Enter(Box<GroupGrant>),
    /// All have taken their places, or it goes on without a tree.
    Over {
        is_back: bool,
    },
}

impl Boundaries {
    /// From the loss of a tree on. Host 0 asks for another at once.
    pub(super) fn new(me: u32, request: &Request) -> Self {
        let mut boundaries = Self {
            operations: 0,
            due: 1,
            last: 0,
            since: Instant::now(),
            pending: (me == 0).then(Arc::default),
            request: Arc::clone(request),
        };
        boundaries.ask();
        boundaries
    }

    /// An operation is about to start: whether there is a boundary before it.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.operations == self.due;
        self.operations += 1;
        is_due
    }

    /// Goes to a boundary.
    pub(super) fn enter(&mut self, links: &mut DirectLinks) -> Result<Boundary, Abort> {
        let mut memory = vec![0; ANNOUNCEMENT_BYTES];
        if self.pending.is_some() {
            let text = self.grant();
            memory[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
            memory[4..].copy_from_slice(&self.next().to_le_bytes());
            memory.extend_from_slice(&text);
        }
        let mut boundary = Boundary { phase: Phase::Announce, memory };
        let announced = &mut boundary.memory[..ANNOUNCEMENT_BYTES];
        // SAFETY: the memory is the boundary's, which lives until the operation is over or has failed; it
        // is on the heap and not resized meanwhile.
        unsafe { links.start(&broadcast(0, announced, Algorithm::Binomial))? };
        Ok(boundary)
    }

    /// Goes on at a boundary.
    pub(super) fn advance(
        &mut self,
        boundary: &mut Boundary,
        links: &mut DirectLinks,
    ) -> Result<AtBoundary, Abort> {
        if !links.poll()? {
            return Ok(AtBoundary::Waiting);
        }
        let number = |at: usize| {
            let bytes = boundary.memory[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        match boundary.phase {
            Phase::Announce => {
                let len_bytes = number(0) as usize;
                self.due = number(4);
                (self.last, self.since) = (self.operations, Instant::now());
                if len_bytes == 0 {
                    return Ok(AtBoundary::Over { is_back: false });
                }
                boundary.memory.resize(ANNOUNCEMENT_BYTES + len_bytes, 0);
                boundary.phase = Phase::Grant;
                let grant = &mut boundary.memory[ANNOUNCEMENT_BYTES..];
                // SAFETY: as above.
                unsafe { links.start(&broadcast(0, grant, Algorithm::Binomial))? };
                self.advance(boundary, links)
            }
            Phase::Grant => match serde_json::from_slice(&boundary.memory[ANNOUNCEMENT_BYTES..]) {
                Ok(grant) => Ok(AtBoundary::Enter(Box::new(grant))),
                Err(_) => {
                    boundary.confirm(false, links)?;
                    Ok(AtBoundary::Waiting)
                }
            },
            Phase::Confirm => {
                let is_back = boundary.memory[0] == 0;
                if !is_back {
                    self.ask();
                }
                Ok(AtBoundary::Over { is_back })
            }
        }
    }

    /// The grant at hand as text; empty if there is none worth trying.
    fn grant(&mut self) -> Vec<u8> {
        let Some(pending) = &self.pending else { return Vec::new() };
        let granted = pending.lock().unwrap_or_else(PoisonError::into_inner).granted.take();
        match granted {
            Some((grant, at)) if at.elapsed() < GRANT_AGE_MAX => {
                serde_json::to_vec(&grant).expect("a grant is plain data")
            }
            Some(_) => {
                self.ask();
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// The operation before which the next boundary lies, so that it comes in about an interval.
    fn next(&self) -> u32 {
        let passed = self.operations.saturating_sub(self.last).max(1);
        let each = (self.since.elapsed() / passed).max(Duration::from_nanos(1));
        let until = (BOUNDARY_INTERVAL.as_nanos() / each.as_nanos()) as u32;
        self.operations + until.clamp(1, BOUNDARY_OPERATIONS_MAX) - 1
    }

    /// Asks the manager in the background until it grants a group.
    fn ask(&mut self) {
        let Some(pending) = &self.pending else { return };
        let mut locked = pending.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut locked.is_wanted, true) {
            return;
        }
        drop(locked);
        let (pending, request) = (Arc::downgrade(pending), Arc::clone(&self.request));
        // Where no thread can be had, the group stays without a tree.
        let _ = threads::spawn("tributary-rejoin", move || {
            let mut pause = RETRY_MIN;
            loop {
                std::thread::sleep(pause);
                pause = (pause * 2).min(RETRY_MAX);
                // Nobody wants a tree any more.
                if pending.strong_count() == 0 {
                    return;
                }
                let Ok(grant) = request() else { continue };
                if let Some(pending) = pending.upgrade() {
                    let mut locked = pending.lock().unwrap_or_else(PoisonError::into_inner);
                    locked.granted = Some((grant, Instant::now()));
                    locked.is_wanted = false;
                }
                return;
            }
        });
    }
}

impl Boundary {
    /// Tells the others whether this host has its place.
    pub(super) fn confirm(
        &mut self,
        has_place: bool,
        links: &mut DirectLinks,
    ) -> Result<(), Abort> {
        self.phase = Phase::Confirm;
        // A bit is set where something is wrong, and bits come together by "or".
        self.memory = vec![u8::from(!has_place)];
        // SAFETY: as in `Boundaries::enter`.
        unsafe { links.start(&gather_bits(&mut self.memory)) }
    }
}
