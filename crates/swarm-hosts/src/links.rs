//! What a leader keeps of its links to other hosts' leaders, and the order in which an operation uses them.

use tributary_waits::contact::Contact;

use crate::connections::EndId;
use crate::frame::Frame;
use crate::plan::Course;

/// Why a leader can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A host was named by somebody.
    Known(u32),
    /// A link to this host has ended, or it has left.
    Ended(u32),
}

/// What is done next over links.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Send(u32),
    Receive(u32),
}

/// One leader's place between hosts.
pub(super) struct Leader {
    pub(super) peers: Vec<Peer>,
    pub(super) backlog: Vec<EndId>,
    /// Its link to the tree's aggregator.
    pub(super) aggregator: Option<EndId>,
    pub(super) has_asked: bool,
    pub(super) is_granted: bool,
    pub(super) told_parts: usize,
    /// Parts whose results are here.
    pub(super) results: usize,
    /// Of the operation under way.
    pub(super) actions: Vec<Action>,
    pub(super) at: usize,
    pub(super) unsent: Vec<(u32, Frame)>,
    pub(super) brought: u64,
    pub(super) at_fault: Option<u32>,
}

pub(super) struct Peer {
    pub(super) contact: Contact,
    pub(super) link: Option<EndId>,
    pub(super) ring: Option<EndId>,
    pub(super) rung: Option<EndId>,
    pub(super) has_left: bool,
}

/// Which leader: its communicator, and its host's number there.
pub(super) type LeaderId = (u32, u32);

impl Leader {
    pub(super) fn new(me: u32, hosts: u32) -> Self {
        let peer = |host| Peer {
            contact: Contact::new(me, host),
            link: None,
            ring: None,
            rung: None,
            has_left: false,
        };
        Self {
            peers: (0..hosts).map(peer).collect(),
            backlog: Vec::new(),
            aggregator: None,
            has_asked: false,
            is_granted: false,
            told_parts: 0,
            results: 0,
            actions: Vec::new(),
            at: 0,
            unsent: Vec::new(),
            brought: 0,
            at_fault: None,
        }
    }

    /// Begins an operation; `own` is what this host contributes.
    pub(super) fn begin(&mut self, own: u64, course: Option<Course>, me: u32, hosts: u32) {
        (self.has_asked, self.is_granted, self.told_parts, self.results) = (false, false, 0, 0);
        (self.at, self.brought) = (0, own);
        self.actions = course.map_or(Vec::new(), |course| actions(course, me, hosts));
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == self.actions.len() && self.unsent.is_empty()
    }

    pub(super) fn has_link(&self) -> bool {
        self.peers.iter().any(|peer| peer.link.is_some())
    }

    pub(super) fn partners(&self) -> Vec<u32> {
        let host = |action: &Action| match action {
            Action::Send(host) | Action::Receive(host) => *host,
        };
        let mut all: Vec<u32> = self.actions.iter().map(host).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn connections(&self) -> Vec<EndId> {
        let of = |peer: &Peer| [peer.link, peer.ring, peer.rung];
        self.peers.iter().flat_map(of).flatten().collect()
    }
}

fn actions(course: Course, me: u32, hosts: u32) -> Vec<Action> {
    use Action::{Receive, Send};
    match course {
        Course::Linear { root } if root == me => {
            let others = || (0..hosts).filter(|host| *host != me);
            others().map(Receive).chain(others().map(Send)).collect()
        }
        Course::Linear { root } => vec![Send(root), Receive(root)],
        Course::Ring => {
            let step = [Send((me + 1) % hosts), Receive((me + hosts - 1) % hosts)];
            step.repeat(hosts as usize - 1)
        }
        Course::Dissemination => {
            let distances = (0..).map(|round| 1 << round).take_while(|distance| *distance < hosts);
            let round =
                |it: u32| [Send((me + it) % hosts), Receive((me + hosts - it % hosts) % hosts)];
            distances.flat_map(round).collect()
        }
    }
}
