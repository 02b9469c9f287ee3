//! Direct links of a leader, as the host library drives them.
//!
//! Which host calls, which rings, and when a wait for a call is over, is the product's
//! ([`tributary_waits::contact`]). What is done with connections is modelled after `inter-host::direct`.

use rand::RngExt;
use tributary_waits::contact::Next;

use crate::connections::{EndId, Owner};
use crate::frame::Frame;
use crate::links::{Action, Failure, LeaderId, Peer};
use crate::system::{Item, System};

impl System<'_> {
    fn peer(&mut self, place: LeaderId, host: u32) -> &mut Peer {
        &mut self.links(place).peers[host as usize]
    }

    /// Goes on with the operation over links, as far as it goes. `true` once it is over.
    pub(super) fn advance_links(&mut self, place: LeaderId) -> Result<bool, Failure> {
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

    fn send_on(&mut self, place: LeaderId) -> Result<(), Failure> {
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

    fn receive(&mut self, place: LeaderId, host: u32) -> Result<Option<u64>, Failure> {
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
    fn reach(&mut self, place: LeaderId, host: u32) -> Result<(), Failure> {
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

    fn ring(&mut self, place: LeaderId, host: u32) {
        let now = self.now;
        let ring = self.call(place, host, true);
        let peer = self.peer(place, host);
        peer.ring = ring;
        peer.contact.on_rung();
        if ring.is_none() {
            peer.contact.on_ring_ended(now);
        }
    }

    /// Connects to a host. The host that listens there finds the call later, and what was said over it. None if it is
    /// refused at once.
    fn call(&mut self, place: LeaderId, host: u32, is_ring: bool) -> Option<EndId> {
        let target = (place.0, host);
        let may_be_near = self.random.random_bool(0.5);
        if may_be_near && self.refuses(self.leading_rank(target), place.0) {
            return None;
        }
        let owners = [place, target].map(|it| Owner::Rank(self.leading_rank(it)));
        let end = self.dial(owners);
        let at = self.now + self.delay_ns();
        self.put(at, Item::Knock { to: end.other(), place: target });
        let contact = &mut self.peer(place, host).contact;
        if !is_ring {
            contact.on_call();
        }
        let call = contact.last_call();
        self.send(end, Frame::Join { host: place.1, is_ring, call });
        Some(end)
    }

    /// A call reaches a host.
    pub(super) fn knock(&mut self, to: EndId, place: LeaderId) {
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
    fn accept(&mut self, place: LeaderId) {
        let me = place.1;
        for end in std::mem::take(&mut self.links(place).backlog) {
            match self.front(end) {
                None => self.links(place).backlog.push(end),
                Some(Frame::Join { host, is_ring, call }) => {
                    let _ = self.next_frame(end);
                    let peer = self.peer(place, host);
                    if is_ring && host > me {
                        peer.rung = Some(end);
                    } else if host < me && peer.link.is_none() {
                        peer.link = Some(end);
                        peer.contact.on_called(call);
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

    fn check_ring(&mut self, place: LeaderId, host: u32) -> Result<(), Failure> {
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
    pub(super) fn check_links(&mut self, place: LeaderId) -> Result<(), Failure> {
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
    fn explain(&mut self, place: LeaderId, failure: Failure) -> u32 {
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
    pub(super) fn fail_links(&mut self, place: LeaderId, failure: Failure) -> u32 {
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
        let aggregator = self.links(place).aggregator;
        let told = ends.into_iter().chain(aggregator);
        told.for_each(|end| self.send(end, Frame::Abort { at_fault }));
        // They are closed when everybody has been told who can be.
        let at = self.now + 3 * self.plan.delay_ns_max;
        self.put(at, Item::Told { place });
        at_fault
    }

    /// All hosts were told why this leader can't go on. It also tells those that have called since.
    pub(super) fn end_told(&mut self, place: LeaderId) {
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
    pub(super) fn leave_links(&mut self, place: LeaderId) {
        self.accept(place);
        let aggregator = self.links(place).aggregator;
        let peers = self.links(place).peers.iter().flat_map(|peer| [peer.link, peer.rung]);
        let told: Vec<EndId> = peers.flatten().chain(aggregator).collect();
        told.into_iter().for_each(|end| self.send(end, Frame::Leave));
        self.close_links(place);
    }

    pub(super) fn close_links(&mut self, place: LeaderId) {
        self.stop_listening(self.leading_rank(place), place.0);
        let links = self.links(place);
        let mut ends = links.connections();
        ends.extend(links.aggregator.take());
        ends.append(&mut links.backlog);
        for peer in &mut links.peers {
            (peer.link, peer.ring, peer.rung) = (None, None, None);
        }
        ends.into_iter().for_each(|end| self.close(end));
    }
}
