//! What a host knows of one other: the link to it, and what was said over it.

use tributary_transport::{Link, ReceiveError, SendError, Sent, TcpLink};
use tributary_waits::contact::{Contact, Next};
use tributary_waits::question::Question;
use tributary_wire::EndpointId;
use tributary_wire::frame::{
    Abort, AbortReason, Edge, Header, Message, Part, Version, Versions, Waiting,
};

use super::calls::Call;
use super::failure::{Failure, Verdict};
use super::identity::Identity;
use super::purpose::Purpose;

/// The version of frames on these links: the processes of a job are of one build.
pub(crate) const VERSION: Version = Versions::SPOKEN.newest;

/// Most frames thrown away of one link in one round of spreading the news.
const DISCARDED_FRAMES_MAX: u32 = 64;

/// Most frames that a host has sent, and another has not read when it leaves. What the kernel may hold of the shortest is less.
const UNREAD_FRAMES_MAX: u32 = 1 << 20;

/// Most questions read of one link in one round.
const QUESTIONS_MAX: u32 = 16;

/// What is known of one other host.
pub(super) struct Peer {
    /// How the link comes about, while it is not there.
    contact: Contact,
    pub(super) link: Option<TcpLink>,
    /// It knows who this host is, because it called or was told.
    pub(super) is_greeted: bool,
    /// It said that it has nothing more to do here.
    pub(super) has_left: bool,
    /// It was sent the reason why there is no going on.
    pub(super) is_told: bool,
    /// The link is there for the case that a tree is lost, and no operation has used it since it is.
    pub(super) stands_by: bool,
    /// A frame that arrived while the links were checked for a failure.
    pub(super) held: Option<(Part, Vec<u8>)>,
    /// The payload of the held frame that was handed out last.
    pub(super) handed_out: Vec<u8>,
    /// What this host has asked it.
    pub(super) question: Question,
    /// What it waits for this host in, and has not been compared.
    pub(super) asked: Option<Asked>,
    /// This host rings there, until it is called.
    ring: Option<Ring>,
    /// The host has rung here. Kept, because the end of it would say that this process is gone.
    pub(super) rung: Option<Rung>,
}

/// The question of a host that waits for this one.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) call: Call,
    /// It came over the link, behind everything that the host had sent before.
    pub(super) is_behind_frames: bool,
}

/// What a host says in a frame.
pub(super) enum Said {
    /// A part of an operation.
    Part(Part),
    /// It waits for this host.
    Waits(Call),
    /// Something of a replicated group.
    Replicated(Message),
    /// It leaves.
    Leaves,
}

/// A call of this host's own to one with a lower number, whose part it is to call: to raise the alarm, or because its
/// link is forgotten here and may not be there.
pub(super) struct Ring {
    link: TcpLink,
    purpose: Purpose,
    is_said: bool,
    /// The other was sent the reason why there is no going on.
    is_told: bool,
}

/// A call by a host with a higher number.
pub(super) struct Rung {
    link: TcpLink,
    /// It was sent the reason why there is no going on.
    is_told: bool,
}

impl Peer {
    pub(super) fn new(contact: Contact) -> Self {
        Self {
            contact,
            link: None,
            is_greeted: false,
            has_left: false,
            is_told: false,
            stands_by: false,
            held: None,
            handed_out: Vec::new(),
            question: Question::default(),
            asked: None,
            ring: None,
            rung: None,
        }
    }

    /// The link is not needed until a tree is lost.
    pub(super) fn stand_by(&mut self) {
        self.stands_by = self.link.is_some();
        self.asked = None;
        self.end_ring();
        // Unless it is for the next loss already, the host that has rung is content.
        drop(self.rung.take_if(|rung| !matches!(rung.link.receive(), Ok(None))));
    }

    /// The link that stands by has ended, or is another now.
    pub(super) fn forget_link(&mut self) {
        self.link = None;
        self.is_greeted = false;
        self.has_left = false;
        if std::mem::take(&mut self.stands_by) {
            self.contact.on_forgotten();
        }
    }

    /// This host calls.
    pub(super) fn take_own_call(&mut self, link: TcpLink) {
        self.contact.on_call();
        self.link = Some(link);
    }

    /// The host has called, and said who it is, and which of its calls this is.
    pub(super) fn take_call(&mut self, link: TcpLink, number: u32) {
        self.forget_link();
        (self.link, self.is_greeted, self.ring) = (Some(link), true, None);
        self.contact.on_called(number);
    }

    /// The host has rung: to be called, if it says which call it has taken last.
    pub(super) fn take_rung(&mut self, link: TcpLink, last_call: Option<u32>) {
        self.rung = Some(Rung { link, is_told: false });
        if self.stands_by && last_call.is_some_and(|last| self.contact.is_forgotten_by(last)) {
            self.forget_link();
        }
    }

    /// The number of the last call that was made, or taken.
    pub(super) fn last_call(&self) -> u32 {
        self.contact.last_call()
    }

    /// What to do for a link to this host, which is not there.
    pub(super) fn poll_next(&mut self, now_ns: u64) -> Next {
        self.contact.poll_next(now_ns)
    }

    /// Rings over a link that was called for it.
    pub(super) fn take_ring(&mut self, ring: Ring) {
        self.ring = Some(ring);
        self.contact.on_rung();
    }

    /// The ring was refused at once.
    pub(super) fn refuse_ring(&mut self, now_ns: u64) {
        self.ring = None;
        self.contact.on_rung();
        self.contact.on_ring_ended(now_ns);
    }

    pub(super) fn end_ring(&mut self) {
        self.ring = None;
        self.contact.end_ring();
    }

    pub(super) fn is_rung(&self) -> bool {
        self.ring.is_some()
    }

    /// Says what the ring is for. Whether some is left to be said.
    pub(super) fn push_ring(&mut self, edge: Edge) -> bool {
        // One whose link has failed is found by the next check.
        self.ring.as_mut().is_some_and(|ring| ring.push(edge) == Ok(Sent::Full))
    }

    /// Says who this host is, where that wasn't said. Full until it could be.
    pub(super) fn greet(&mut self, edge: Edge) -> Result<Sent, SendError> {
        let Some(link) = &mut self.link else { return Ok(Sent::Full) };
        if self.is_greeted {
            return Ok(Sent::Taken);
        }
        let edge = Edge { epoch: Purpose::Link { call: self.contact.last_call() }.epoch(), ..edge };
        let header = Header { edge, message: Message::Join };
        let sent = link.send(&header.encode(), &[])?;
        self.is_greeted = sent == Sent::Taken;
        Ok(sent)
    }

    /// Sends a message, after the greeting.
    pub(super) fn say(
        &mut self,
        edge: Edge,
        message: Message,
        payload: &[u8],
    ) -> Result<Sent, SendError> {
        if self.greet(edge)? == Sent::Full {
            return Ok(Sent::Full);
        }
        let Some(link) = &mut self.link else { return Ok(Sent::Full) };
        link.send(&Header { edge, message }.encode(), payload)
    }

    /// Whether the link may have taken what the kernel had no room for.
    pub(super) fn has_rest(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !self.is_greeted || link.wants_write())
    }

    /// Keeps the next frame of `host`, which this is, or finds out that its link has ended. One that stood by is
    /// forgotten then: the tree tells who is gone, and another is made when it is needed.
    pub(super) fn hold_next(&mut self, host: u32, identity: &Identity) -> Result<(), Failure> {
        for _ in 0..QUESTIONS_MAX {
            if self.held.is_some() || self.has_left {
                break;
            }
            let Some(link) = &mut self.link else { break };
            let frame = match link.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    let failure = failure_of(host, identity, error);
                    if self.stands_by && failure == Failure::Ended(host) {
                        self.forget_link();
                        break;
                    }
                    return Err(failure);
                }
            };
            match message_from(host, identity, &frame.header)? {
                Said::Part(part) => {
                    self.held = Some((part, frame.payload.to_vec()));
                    self.stands_by = false;
                }
                Said::Waits(call) => {
                    self.asked = Some(Asked { call, is_behind_frames: true });
                }
                Said::Replicated(_) => return Err(misbehaviour_of(host).into()),
                Said::Leaves => self.has_left = true,
            }
        }
        Ok(())
    }

    /// Asks the host, for which this one waits, whether it called the same, if that is due.
    pub(super) fn ask(&mut self, edge: Edge, call: Call, now_ns: u64) {
        if self.question.is_due(call.number.0, now_ns) && self.say_waiting(edge, call.question()) {
            self.question.on_asked();
        }
    }

    /// Discards what has come. `true` once the link may end: the other host has left, too, or its kernel has all that was sent.
    /// Whatever that host says to a link that has ended, a question for instance, makes the kernel here reset it, and take back the
    /// rest.
    pub(super) fn may_end(&mut self) -> bool {
        let Some(link) = &mut self.link else { return true };
        self.has_left |= discard_until_leave(link);
        self.has_left || has_arrived(link)
    }

    /// Says in which call this host waits, over whatever leads there. Whether it could.
    pub(super) fn say_waiting(&mut self, edge: Edge, waiting: Waiting) -> bool {
        let message = Message::Waiting(waiting);
        if self.link.is_some() {
            return self.say(edge, message, &[]) == Ok(Sent::Taken);
        }
        self.ring.as_mut().is_some_and(|ring| ring.say(edge, message) == Ok(Sent::Taken))
    }

    /// Fails if `host`, which this is, can't be there to call this one, as it was asked to, or says why there is no going
    /// on.
    pub(super) fn check_ring(
        &mut self,
        host: u32,
        identity: &Identity,
        now_ns: u64,
    ) -> Result<(), Failure> {
        if self.link.is_some() {
            return Ok(());
        }
        if let Some(ring) = &mut self.ring {
            match ring.link.receive().map_err(|error| failure_of(host, identity, error)) {
                Ok(None) => {}
                Ok(Some(frame)) => match message_from(host, identity, &frame.header)? {
                    Said::Leaves => self.contact.on_left(now_ns),
                    Said::Waits(call) => self.asked = Some(Asked { call, is_behind_frames: false }),
                    Said::Part(_) | Said::Replicated(_) => {}
                },
                Err(Failure::Ended(_)) => self.contact.on_ring_ended(now_ns),
                Err(known) => return Err(known),
            }
        }
        if self.contact.is_over(now_ns) { Err(Failure::Ended(host)) } else { Ok(()) }
    }

    /// Reads what `host`, which this is, says over its ring: why there is no going on, or nothing more, for the ring has
    /// served its purpose or its process is gone.
    pub(super) fn check_rung(&mut self, host: u32, identity: &Identity) -> Result<(), Failure> {
        let Some(rung) = &mut self.rung else { return Ok(()) };
        match rung.link.receive() {
            Ok(None) => {}
            Ok(Some(frame)) => {
                if let Said::Waits(call) = message_from(host, identity, &frame.header)? {
                    self.asked = Some(Asked { call, is_behind_frames: false });
                }
            }
            // A call finds out whether the process is gone.
            Err(_) => self.rung = None,
        }
        Ok(())
    }

    /// Sends a message to a host that has rung.
    pub(super) fn answer_ring(&mut self, edge: Edge, message: Message) -> Result<Sent, SendError> {
        let Some(rung) = &mut self.rung else { return Ok(Sent::Taken) };
        rung.link.send(&Header { edge, message }.encode(), &[])
    }

    /// Sends `verdict` in one round of spreading it, and discards input. `true` once the host has it, or can't have it.
    pub(super) fn tell(&mut self, edge: Edge, verdict: Verdict) -> bool {
        let message = verdict.message();
        if self.rung.as_ref().is_some_and(|rung| !rung.is_told) {
            let is_told = self.answer_ring(edge, message) != Ok(Sent::Full);
            self.rung.iter_mut().for_each(|rung| rung.is_told = is_told);
        }
        if !self.is_told && self.link.is_some() {
            // A link that failed has nobody to tell.
            self.is_told = self.say(edge, message, &[]) != Ok(Sent::Full);
        }
        let knows_by_own_ring = self.ring.as_mut().is_none_or(|ring| ring.tell(edge, message));
        let knows_by_ring =
            self.rung.as_mut().is_none_or(|rung| rung.is_told && is_out(&mut rung.link));
        let knows_by_link = self.link.as_mut().is_none_or(|link| self.is_told && is_out(link));
        knows_by_own_ring && knows_by_ring && knows_by_link
    }

    /// Ends the links over which the host could not be told, so that it finds an ended link.
    pub(super) fn end_untold(&mut self) {
        self.end_ring();
        self.rung = None;
        if let Some(link) = self.link.as_mut().filter(|_| !self.is_told) {
            link.shutdown();
        }
    }

    /// Why there is no going on, as `host`, which this is, has said, if it did so within the next `frames_max`
    /// frames. They are read: there is no going on after this.
    pub(super) fn verdict_said(
        &mut self,
        host: u32,
        identity: &Identity,
        frames_max: u32,
    ) -> Option<Verdict> {
        let links = self.link.iter_mut().chain(self.rung.iter_mut().map(|rung| &mut rung.link));
        links.into_iter().find_map(|link| verdict_in(link, host, identity, frames_max))
    }
}

impl Ring {
    /// Rings over a link that was called for it.
    pub(super) fn new(link: TcpLink, purpose: Purpose) -> Self {
        Self { link, purpose, is_said: false, is_told: false }
    }

    /// Says what it is for, with the edge of this host. Full while some of that is left to be said.
    fn push(&mut self, edge: Edge) -> Result<Sent, SendError> {
        if !self.is_said {
            let edge = Edge { epoch: self.purpose.epoch(), ..edge };
            let header = Header { edge, message: Message::Join };
            self.is_said = self.link.send(&header.encode(), &[])? == Sent::Taken;
        }
        if self.is_said { self.link.flush() } else { Ok(Sent::Full) }
    }

    /// Says a message, once it is said what the ring is for.
    fn say(&mut self, edge: Edge, message: Message) -> Result<Sent, SendError> {
        if self.push(edge)? == Sent::Full && !self.is_said {
            return Ok(Sent::Full);
        }
        self.link.send(&Header { edge, message }.encode(), &[])
    }

    /// Sends `message`, an abort, in one round of spreading it. `true` once the host has it, or can't have it.
    fn tell(&mut self, edge: Edge, message: Message) -> bool {
        match self.push(edge) {
            Err(_) => return true,
            Ok(Sent::Full) if !self.is_said => return false,
            Ok(_) => {}
        }
        if !self.is_told {
            let told = self.link.send(&Header { edge, message }.encode(), &[]);
            self.is_told = told != Ok(Sent::Full);
        }
        self.is_told && is_out(&mut self.link)
    }
}

/// What `host` has said over `link` of why there is no going on, if it did so within the next `frames_max` frames.
fn verdict_in(
    link: &mut TcpLink,
    host: u32,
    identity: &Identity,
    frames_max: u32,
) -> Option<Verdict> {
    for _ in 0..frames_max {
        match link.receive() {
            Ok(Some(frame)) => {
                if let Err(verdict) = message_from(host, identity, &frame.header) {
                    return Some(verdict);
                }
            }
            Ok(None) => return None,
            Err(error) => return failure_of(host, identity, error).known_verdict(),
        }
    }
    None
}

/// Reads and forgets frames. Whether there were any.
fn discard(link: &mut TcpLink) -> bool {
    let frames = (0..DISCARDED_FRAMES_MAX).take_while(|_| matches!(link.receive(), Ok(Some(_))));
    frames.count() > 0
}

/// Reads and forgets frames. Whether there will be none any more: the other host has left, or the link has ended.
fn discard_until_leave(link: &mut TcpLink) -> bool {
    for _ in 0..UNREAD_FRAMES_MAX {
        match link.receive() {
            Ok(Some(frame)) if frame.header.message == Message::Leave => return true,
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
    // No host has so much to say to one that it needs nothing of.
    true
}

/// One round of getting out what `link` has taken, while input is discarded. `true` once the other end's kernel has it.
fn is_out(link: &mut TcpLink) -> bool {
    discard(link);
    has_arrived(link)
}

/// Gets out what `link` has taken. `true` once the other end's kernel has it.
fn has_arrived(link: &mut TcpLink) -> bool {
    link.flush() != Ok(Sent::Full) && link.has_delivered()
}

/// What it means that nothing more can be received from `host`. What is no frame at all has no code
/// either.
pub(super) fn failure_of(host: u32, identity: &Identity, error: ReceiveError) -> Failure {
    use ReceiveError::{Decode, NotAuthentic, TooLong};
    let is_altered = matches!(error, NotAuthentic { .. } | Decode(_) | TooLong { .. });
    if identity.is_authenticated() && is_altered {
        return Abort { reason: AbortReason::NotAuthentic, at_fault: EndpointId(host) }.into();
    }
    Failure::Ended(host)
}

/// What `host` says in a frame, or why there is no going on.
pub(super) fn message_from(
    host: u32,
    identity: &Identity,
    header: &Header,
) -> Result<Said, Verdict> {
    let Edge { group, child, capability, version, .. } = header.edge;
    let is_ours = group == identity.group
        && capability == identity.secret
        && u32::from(child.0) == host
        && version == VERSION;
    match header.message {
        Message::Request(part) if is_ours => Ok(Said::Part(part)),
        Message::Waiting(waiting) if is_ours => Ok(Said::Waits(waiting.into())),
        Message::Contribution(_)
        | Message::LevelSum(_)
        | Message::Passed { .. }
        | Message::Ask(_)
        | Message::NotYet(_)
        | Message::AskForSum { .. }
        | Message::Departure { .. }
        | Message::Farewell { .. }
            if is_ours =>
        {
            Ok(Said::Replicated(header.message))
        }
        Message::Leave if is_ours => Ok(Said::Leaves),
        Message::Abort(abort) if is_ours => Err(abort.into()),
        Message::Disagreement(disagreement) if is_ours => Err(disagreement.into()),
        _ => Err(misbehaviour_of(host)),
    }
}

/// Host `host` broke the protocol.
pub(crate) fn misbehaviour_of(host: u32) -> Verdict {
    Abort { reason: AbortReason::Misbehaved, at_fault: EndpointId(host) }.into()
}
