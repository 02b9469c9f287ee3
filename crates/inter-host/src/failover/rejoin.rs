//! The way back into a tree. Host 0 asks for a group in the background, and tells all hosts of it at a boundary between
//! two operations. They take their places in the background, too, and go back at a later boundary, when all have them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tributary_algorithms::Algorithm;
use tributary_protocol::failover::boundaries::{
    AfterAnnouncement, Announcement, Boundaries, GRANT_AGE_MAX_NS, Place,
};
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::Abort;

use super::entering::Entering;
use super::pieces::{broadcast, gather_bits};
use super::terms::Terms;
use crate::direct::DirectLinks;
use crate::operation::InterHost;
use crate::threads;
use crate::tree::TreeMember;

/// Asks the manager for a group of the same hosts. Waits for the answer.
pub type Request = Arc<dyn Fn() -> Result<GroupGrant, String> + Send + Sync>;

/// A request under way, and its grant.
#[derive(Default)]
struct Pending {
    is_wanted: bool,
    granted: Option<(GroupGrant, Instant)>,
}

/// The way back of this host.
pub(super) struct Rejoin {
    boundaries: Boundaries,
    /// When there was no tree any more, or not yet, from which time is counted.
    began: Instant,
    /// At host 0.
    pending: Option<Arc<Mutex<Pending>>>,
    request: Request,
    /// Since a grant was announced, at every host.
    entering: Option<Entering>,
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

/// What comes of a step at a boundary.
pub(super) enum AtBoundary {
    Waiting,
    /// It goes on without a tree.
    Over,
    /// All have taken their places; this is this host's.
    Back(Box<TreeMember>),
}

impl Rejoin {
    /// From the loss of a tree on, or the beginning without one. Host 0 asks for one at once.
    pub(super) fn new(me: u32, request: &Request) -> Self {
        let rejoin = Self {
            boundaries: Boundaries::new(0),
            began: Instant::now(),
            pending: (me == 0).then(Arc::default),
            request: Arc::clone(request),
            entering: None,
        };
        rejoin.ask();
        rejoin
    }

    /// An operation is about to start: whether there is a boundary before it.
    pub(super) fn is_due(&mut self) -> bool {
        self.boundaries.on_operation()
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Goes to a boundary.
    pub(super) fn enter(&mut self, links: &mut DirectLinks) -> Result<Boundary, Abort> {
        let mut memory = vec![0; Announcement::BYTES];
        if self.pending.is_some() {
            let text = self.grant();
            let announcement = self.boundaries.announcement(self.now_ns(), text.len() as u32);
            memory.copy_from_slice(&announcement.encode());
            memory.extend_from_slice(&text);
        }
        let mut boundary = Boundary { phase: Phase::Announce, memory };
        let announced = &mut boundary.memory[..Announcement::BYTES];
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
                    let (announcement, now_ns) = (boundary.announcement(), self.now_ns());
                    let place = self.entering.as_ref().map(Entering::place);
                    match self.boundaries.on_announced(now_ns, announcement, place.is_some()) {
                        AfterAnnouncement::Places => {
                            let place = place.expect("places are exchanged while one is taken");
                            boundary.exchange_places(place, links)?;
                        }
                        AfterAnnouncement::Grant => {
                            boundary.spread_grant(announcement.grant_bytes as usize, links)?;
                        }
                        AfterAnnouncement::Nothing => return Ok(AtBoundary::Over),
                    }
                }
                Phase::Grant => {
                    self.entering = Some(match boundary.grant() {
                        Some(grant) => Entering::begin(terms, grant, links.me()),
                        None => Entering::without_place(),
                    });
                    return Ok(AtBoundary::Over);
                }
                Phase::Places => return Ok(self.on_places(Place::of_all(boundary.memory[0]))),
            }
        }
    }

    /// Every host has said how far it is.
    fn on_places(&mut self, all: Place) -> AtBoundary {
        if all == Place::UnderWay {
            return AtBoundary::Over;
        }
        let place = self.entering.take().and_then(Entering::into_place);
        match place {
            Some(place) if all == Place::Taken => AtBoundary::Back(place),
            _ => {
                self.boundaries.on_grant_failed();
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
            Some((grant, at)) if at.elapsed() < Duration::from_nanos(GRANT_AGE_MAX_NS) => {
                serde_json::to_vec(&grant).expect("a grant is plain data")
            }
            Some(_) => {
                self.ask();
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Asks the manager in the background until it grants a group.
    fn ask(&self) {
        let Some(pending) = &self.pending else { return };
        let mut locked = pending.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut locked.is_wanted, true) {
            return;
        }
        drop(locked);
        let (pending, request) = (Arc::downgrade(pending), Arc::clone(&self.request));
        let boundaries = self.boundaries.clone();
        // Where no thread can be had, the group stays without a tree.
        let _ = threads::spawn("tributary-rejoin", move || {
            for asked in 0.. {
                std::thread::sleep(Duration::from_nanos(boundaries.pause_ns(asked)));
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
    fn announcement(&self) -> Announcement {
        let (announced, _) = self.memory.split_first_chunk().expect("it begins with one");
        Announcement::decode(*announced)
    }

    /// Host 0 spreads its grant.
    fn spread_grant(&mut self, grant_bytes: usize, links: &mut DirectLinks) -> Result<(), Abort> {
        self.phase = Phase::Grant;
        self.memory.resize(Announcement::BYTES + grant_bytes, 0);
        let grant = &mut self.memory[Announcement::BYTES..];
        // SAFETY: as in `Rejoin::enter`.
        unsafe { links.start(&broadcast(0, grant, Algorithm::Binomial)) }
    }

    /// What was spread, if it can be read.
    fn grant(&self) -> Option<GroupGrant> {
        serde_json::from_slice(&self.memory[Announcement::BYTES..]).ok()
    }

    /// All hosts tell each other how far they are with their places.
    fn exchange_places(&mut self, place: Place, links: &mut DirectLinks) -> Result<(), Abort> {
        self.phase = Phase::Places;
        self.memory = vec![place.bits()];
        // SAFETY: as in `Rejoin::enter`.
        unsafe { links.start(&gather_bits(&mut self.memory)) }
    }
}
