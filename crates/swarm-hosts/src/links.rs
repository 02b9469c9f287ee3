//! Direct links of a leader, as the host library drives them.
//!
//! Which host calls, which rings, and when a wait for a call is over, is the product's
//! ([`tributary_waits::contact`]). What is done with connections is modelled after `inter-host::direct`.

use rand::RngExt;
use tributary_waits::contact::{Contact, Next};

use super::connections::{EndId, Owner};
use super::plan::Course;
use super::{Frame, Item, System};

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
enum Action {
    Send(u32),
    Receive(u32),
}

/// One leader's place between hosts.
pub(super) struct Leader {
    peers: Vec<Peer>,
    backlog: Vec<EndId>,
    /// Its link to the tree's node.
    pub(super) node: Option<EndId>,
    pub(super) has_asked: bool,
    pub(super) is_granted: bool,
    pub(super) told_parts: usize,
    /// Parts whose results are here.
    pub(super) results: usize,
    /// Of the operation under way.
    actions: Vec<Action>,
    at: usize,
    unsent: Vec<(u32, Frame)>,
    pub(super) brought: u64,
    pub(super) at_fault: Option<u32>,
}

struct Peer {
    contact: Contact,
    link: Option<EndId>,
    ring: Option<EndId>,
    rung: Option<EndId>,
    has_left: bool,
}

/// Which leader: its communicator, and its host's number there.
pub(super) type Place = (u32, u32);

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
            node: None,
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

    fn is_done(&self) -> bool {
        self.at == self.actions.len() && self.unsent.is_empty()
    }

    pub(super) fn has_link(&self) -> bool {
        self.peers.iter().any(|peer| peer.link.is_some())
    }

    fn partners(&self) -> Vec<u32> {
        let host = |action: &Action| match action {
            Action::Send(host) | Action::Receive(host) => *host,
        };
        let mut all: Vec<u32> = self.actions.iter().map(host).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn connections(&self) -> Vec<EndId> {
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

impl System<'_> {
    pub(super) fn links(&mut self, place: Place) -> &mut Leader {
        let shared = &mut self.communicators[place.0 as usize].hosts[place.1 as usize];
        shared.leader.as_mut().expect("its set-up has begun")
    }

    fn peer(&mut self, place: Place, host: u32) -> &mut Peer {
        &mut self.links(place).peers[host as usize]
    }

    fn leading_rank(&self, (communicator, host): Place) -> u32 {
        self.plan.communicators[communicator as usize].hosts[host as usize][0]
    }

    /// Goes on with the operation over links, as far as it goes. `true` once it is over.
    pub(super) fn advance_links(&mut self, place: Place) -> Result<bool, Failure> {
        for host in self.links(place).partners() {
            self.reach(place, host)?;
        }
        loop {
            self.send_on(place)?;
            let links = self.links(place);
            match links.actions.get(links.at).copied() {
                None => return Ok(links.is_done()),
                Some(Action::Send(host)) => {
                    let frame = Frame::Part { brought: links.brought };
                    links.unsent.push((host, frame));
                }
                Some(Action::Receive(host)) => match self.receive(place, host)? {
                    Some(brought) => self.links(place).brought |= brought,
                    None => return Ok(false),
                },
            }
            self.links(place).at += 1;
        }
    }

    fn send_on(&mut self, place: Place) -> Result<(), Failure> {
        let unsent = std::mem::take(&mut self.links(place).unsent);
        for (host, frame) in unsent {
            self.reach(place, host)?;
            match self.peer(place, host).link {
                Some(link) => self.send(link, frame),
                None => self.links(place).unsent.push((host, frame)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, place: Place, host: u32) -> Result<Option<u64>, Failure> {
        self.reach(place, host)?;
        if self.peer(place, host).has_left {
            return Err(Failure::Ended(host));
        }
        let Some(link) = self.peer(place, host).link else { return Ok(None) };
        match self.next_frame(link) {
            None => Ok(None),
            Some(Frame::Part { brought }) => Ok(Some(brought)),
            Some(Frame::Abort { at_fault }) => Err(Failure::Known(at_fault)),
            Some(_) => Err(Failure::Ended(host)),
        }
    }

    /// Sees to it that there is a link to `host`, or will be.
    fn reach(&mut self, place: Place, host: u32) -> Result<(), Failure> {
        if self.peer(place, host).link.is_some() {
            return Ok(());
        }
        self.accept(place);
        if self.peer(place, host).link.is_some() {
            return Ok(());
        }
        let now = self.now;
        match self.peer(place, host).contact.poll_next(now) {
            Next::Call => {
                let link = self.call(place, host, false);
                self.peer(place, host).link = link;
                link.map_or(Err(Failure::Ended(host)), |_| Ok(()))
            }
            Next::Ring => {
                self.ring(place, host);
                Ok(())
            }
            Next::Wait | Next::GiveUp => self.check_ring(place, host),
        }
    }

    fn ring(&mut self, place: Place, host: u32) {
        let now = self.now;
        let ring = self.call(place, host, true);
        let peer = self.peer(place, host);
        peer.ring = ring;
        peer.contact.on_rung();
        if ring.is_none() {
            peer.contact.on_ring_ended(now);
        }
    }

    /// Connects to a host. The host that listens there finds the call later, and what was said over it. None if it is refused at
    /// once.
    fn call(&mut self, place: Place, host: u32, is_ring: bool) -> Option<EndId> {
        let target = (place.0, host);
        let may_be_near = self.random.random_bool(0.5);
        if may_be_near && self.refuses(self.leading_rank(target), place.0) {
            return None;
        }
        let owners = [place, target].map(|it| Owner::Rank(self.leading_rank(it)));
        let end = self.dial(owners);
        let at = self.now + self.delay_ns();
        self.put(at, Item::Knock { to: end.other(), place: target });
        self.send(end, Frame::Join { host: place.1, is_ring });
        Some(end)
    }

    /// A call reaches a host.
    pub(super) fn knock(&mut self, to: EndId, place: Place) {
        let rank = self.leading_rank(place);
        if self.is_listening(rank, place.0) {
            self.pick_up(to);
            self.links(place).backlog.push(to);
            self.poll(rank, false);
        } else {
            self.strand_or_refuse(to, rank, place.0);
        }
    }

    /// Takes the calls that have come and said who they are of.
    fn accept(&mut self, place: Place) {
        let me = place.1;
        for end in std::mem::take(&mut self.links(place).backlog) {
            match self.front(end) {
                None => self.links(place).backlog.push(end),
                Some(Frame::Join { host, is_ring }) => {
                    let _ = self.next_frame(end);
                    let peer = self.peer(place, host);
                    if is_ring && host > me {
                        peer.rung = Some(end);
                    } else if host < me && peer.link.is_none() {
                        peer.link = Some(end);
                        peer.contact.on_called();
                        if let Some(ring) = peer.ring.take() {
                            self.close(ring);
                        }
                    } else {
                        self.close(end);
                    }
                }
                Some(_) => self.close(end),
            }
        }
    }

    fn check_ring(&mut self, place: Place, host: u32) -> Result<(), Failure> {
        let Peer { link: None, ring, .. } = *self.peer(place, host) else { return Ok(()) };
        let now = self.now;
        match ring.and_then(|ring| self.next_frame(ring)) {
            Some(Frame::Abort { at_fault }) => return Err(Failure::Known(at_fault)),
            Some(Frame::Leave) => self.peer(place, host).contact.on_left(now),
            Some(Frame::Fin) => self.peer(place, host).contact.on_ring_ended(now),
            _ => {}
        }
        if !self.peer(place, host).contact.is_over(now) {
            return Ok(());
        }
        // It may have called before it went.
        self.accept(place);
        if self.peer(place, host).link.is_some() { Ok(()) } else { Err(Failure::Ended(host)) }
    }

    /// Looks at every link for a host that failed.
    pub(super) fn check_links(&mut self, place: Place) -> Result<(), Failure> {
        let hosts = self.links(place).peers.len() as u32;
        for host in 0..hosts {
            let Peer { link, rung, has_left, .. } = *self.peer(place, host);
            match link.filter(|_| !has_left).and_then(|link| self.front(link)) {
                Some(Frame::Abort { at_fault }) => return Err(Failure::Known(at_fault)),
                Some(Frame::Leave) => self.peer(place, host).has_left = true,
                Some(Frame::Fin) => return Err(Failure::Ended(host)),
                _ => {}
            }
            match rung.and_then(|rung| self.next_frame(rung).map(|frame| (rung, frame))) {
                Some((_, Frame::Abort { at_fault })) => return Err(Failure::Known(at_fault)),
                Some((rung, _)) => {
                    self.peer(place, host).rung = None;
                    self.close(rung);
                }
                None => {}
            }
        }
        (0..hosts).try_for_each(|host| self.check_ring(place, host))
    }

    /// The host to name for a failure: one that anybody has named, else the host whose link has ended.
    fn explain(&mut self, place: Place, failure: Failure) -> u32 {
        let host = match failure {
            Failure::Known(at_fault) => return at_fault,
            Failure::Ended(host) => host,
        };
        self.accept(place);
        let hosts = self.links(place).peers.len() as u32;
        let others = (0..hosts).filter(|it| *it != host);
        for other in std::iter::once(host).chain(others) {
            let Peer { link, rung, .. } = *self.peer(place, other);
            for end in [link, rung].into_iter().flatten() {
                let said = self.unread(end).into_iter().find_map(|frame| match frame {
                    Frame::Abort { at_fault } => Some(at_fault),
                    _ => None,
                });
                if let Some(at_fault) = said {
                    return at_fault;
                }
            }
        }
        host
    }

    /// A leader can't go on, and tells the others why. Returns the host at fault.
    pub(super) fn fail_links(&mut self, place: Place, failure: Failure) -> u32 {
        let at_fault = self.explain(place, failure);
        let me = place.1;
        for host in self.links(place).partners() {
            let Peer { link, ring, .. } = *self.peer(place, host);
            if host == at_fault || link.is_some() || ring.is_some() {
                continue;
            }
            if me < host {
                self.peer(place, host).link = self.call(place, host, false);
            } else {
                self.ring(place, host);
            }
        }
        self.accept(place);
        self.links(place).at_fault = Some(at_fault);
        let ends = self.links(place).connections();
        let node = self.links(place).node;
        let told = ends.into_iter().chain(node);
        told.for_each(|end| self.send(end, Frame::Abort { at_fault }));
        // They are closed when everybody has been told who can be.
        let at = self.now + 3 * self.plan.delay_ns_max;
        self.put(at, Item::Told { place });
        at_fault
    }

    /// All hosts were told why this leader can't go on. It also tells those that have called since.
    pub(super) fn end_told(&mut self, place: Place) {
        if !self.processes[self.leading_rank(place) as usize].is_alive {
            return;
        }
        let known = self.links(place).connections();
        self.accept(place);
        let at_fault = self.links(place).at_fault.expect("it has failed");
        let late = self.links(place).connections().into_iter().filter(|end| !known.contains(end));
        late.for_each(|end| self.send(end, Frame::Abort { at_fault }));
        self.close_links(place);
    }

    /// A leader leaves.
    pub(super) fn leave_links(&mut self, place: Place) {
        self.accept(place);
        let node = self.links(place).node;
        let peers = self.links(place).peers.iter().flat_map(|peer| [peer.link, peer.rung]);
        let told: Vec<EndId> = peers.flatten().chain(node).collect();
        told.into_iter().for_each(|end| self.send(end, Frame::Leave));
        self.close_links(place);
    }

    pub(super) fn close_links(&mut self, place: Place) {
        self.stop_listening(self.leading_rank(place), place.0);
        let links = self.links(place);
        let mut ends = links.connections();
        ends.extend(links.node.take());
        ends.append(&mut links.backlog);
        for peer in &mut links.peers {
            (peer.link, peer.ring, peer.rung) = (None, None, None);
        }
        ends.into_iter().for_each(|end| self.close(end));
    }
}
