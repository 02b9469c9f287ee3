//! The way back into a tree. Host 0 asks for a group in the background, and tells all hosts of it at a boundary between
//! two operations. They take their places in the background, too, and go back at a later boundary, when all have them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tributary_algorithms::Algorithm;
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::Abort;

use super::entering::{Entering, standing};
use super::pieces::{broadcast, gather_bits};
use super::terms::Terms;
use crate::direct::DirectLinks;
use crate::operation::InterHost;
use crate::threads;
use crate::tree::TreeMember;

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

/// When this host is next asked for its place in a tree.
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
    /// Since a grant was announced, at every host.
    entering: Option<Entering>,
    /// Grants by which some host found no place, in a row.
    failed: u32,
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
    /// How far every host is with its place.
    Places,
}

/// What host 0 announces: two numbers, little-endian.
const ANNOUNCEMENT_BYTES: usize = 8;

/// What comes of a step at a boundary.
pub(super) enum AtBoundary {
    Waiting,
    /// It goes on without a tree.
    Over,
    /// All have taken their places; this is this host's.
    Back(Box<TreeMember>),
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
            entering: None,
            failed: 0,
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
        terms: &Terms,
    ) -> Result<AtBoundary, Abort> {
        loop {
            if !links.poll()? {
                return Ok(AtBoundary::Waiting);
            }
            match boundary.phase {
                Phase::Announce => {
                    let (grant_bytes, next) = boundary.announcement();
                    self.due = next;
                    (self.last, self.since) = (self.operations, Instant::now());
                    if let Some(entering) = &self.entering {
                        boundary.exchange_places(entering.standing(), links)?;
                    } else if grant_bytes > 0 {
                        boundary.spread_grant(grant_bytes, links)?;
                    } else {
                        return Ok(AtBoundary::Over);
                    }
                }
                Phase::Grant => {
                    self.entering = Some(match boundary.grant() {
                        Some(grant) => Entering::begin(terms, grant, links.me()),
                        None => Entering::failed(),
                    });
                    return Ok(AtBoundary::Over);
                }
                Phase::Places => return Ok(self.on_places(boundary.memory[0])),
            }
        }
    }

    /// Every host has said how far it is.
    fn on_places(&mut self, standing: u8) -> AtBoundary {
        if standing == standing::UNDER_WAY {
            return AtBoundary::Over;
        }
        let place = self.entering.take().and_then(Entering::into_place);
        match place {
            Some(place) if standing == standing::TAKEN => AtBoundary::Back(place),
            _ => {
                self.failed += 1;
                self.ask();
                AtBoundary::Over
            }
        }
    }

    /// The grant at hand as text; empty if there is none worth trying.
    fn grant(&mut self) -> Vec<u8> {
        let Some(pending) = self.pending.as_ref().filter(|_| self.entering.is_none()) else {
            return Vec::new();
        };
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
        let mut pause = (RETRY_MIN * (1 << self.failed.min(16))).min(RETRY_MAX);
        // Where no thread can be had, the group stays without a tree.
        let _ = threads::spawn("tributary-rejoin", move || {
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
    /// The grant's length in bytes, and the next boundary's place.
    fn announcement(&self) -> (usize, u32) {
        let number = |at: usize| {
            let bytes = self.memory[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        (number(0) as usize, number(4))
    }

    /// Host 0 spreads its grant.
    fn spread_grant(&mut self, grant_bytes: usize, links: &mut DirectLinks) -> Result<(), Abort> {
        self.phase = Phase::Grant;
        self.memory.resize(ANNOUNCEMENT_BYTES + grant_bytes, 0);
        let grant = &mut self.memory[ANNOUNCEMENT_BYTES..];
        // SAFETY: as in `Boundaries::enter`.
        unsafe { links.start(&broadcast(0, grant, Algorithm::Binomial)) }
    }

    /// What was spread, if it can be read.
    fn grant(&self) -> Option<GroupGrant> {
        serde_json::from_slice(&self.memory[ANNOUNCEMENT_BYTES..]).ok()
    }

    /// All hosts tell each other how far they are with their places.
    fn exchange_places(&mut self, standing: u8, links: &mut DirectLinks) -> Result<(), Abort> {
        self.phase = Phase::Places;
        self.memory = vec![standing];
        // SAFETY: as in `Boundaries::enter`.
        unsafe { links.start(&gather_bits(&mut self.memory)) }
    }
}
