//! How two hosts come to the link between them, and how the one that waits to be called finds out that nobody will.
//!
//! Of two hosts the one with the lower number calls, when an operation of its own needs the link. So the other waits for
//! something that never happens if the caller is dead, or has left. No timeout may stand for a proof of that: a host
//! that has waited for a while rings, which is a call of its own, and leaves that connection open. The proof is its refusal,
//! its end, or a `Leave` over it, a little later: the other may have called, sent all it had to send, and gone, and what it
//! sent may be overtaken by the end of the ring where a network loses packets.
//!
//! A ring may arrive long after the call that it was to bring about, and after all operations that needed the link. So calls
//! are numbered, and a ring says which call the host has taken last: only if that one made the link that is here has the
//! host forgotten this link.
//!
//! This module decides; connections are the driver's. Times are in nanoseconds of any one clock.

/// How long a host waits to be called before it rings. A late host costs one connection more; a dead one is noticed
/// this much later than it could be.
pub const CALL_PATIENCE_NS: u64 = 100_000_000;

/// How long after the end of a ring the call may come that was made before: the two travel over different connections, and
/// what is lost of one is sent again after 0.2 s.
pub const RING_PATIENCE_NS: u64 = 500_000_000;

/// What one host knows of the link to another that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contact {
    is_caller: bool,
    /// Since when this host waits to be called.
    awaited_since_ns: Option<u64>,
    /// There was a link, which has ended here. The other may not have noticed.
    is_forgotten: bool,
    /// The number of the last call: that was made, or that was taken. From 1 on.
    last_call: u32,
    ring: Ring,
}

/// A call by a host that is to be called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ring {
    Silent,
    Open,
    /// It was refused, has ended, or the other has said over it that it leaves. A host that leaves has called every
    /// host before that it had something to say to.
    Over {
        at_ns: u64,
    },
}

/// What a host does that needs a link which is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call the other: that is this host's part.
    Call,
    /// Wait to be called.
    Wait,
    /// Ring at the other, and report what comes of it.
    Ring,
    /// Nobody will call. Whatever calls have come must be taken first, with [`Contact::on_called`]: the other may have
    /// called before it went.
    GiveUp,
}

impl Contact {
    /// Host `me`'s, with host `other`.
    #[must_use]
    pub const fn new(me: u32, other: u32) -> Self {
        let is_caller = me < other;
        Self {
            is_caller,
            awaited_since_ns: None,
            is_forgotten: false,
            last_call: 0,
            ring: Ring::Silent,
        }
    }

    /// The number of the last call that was made, or taken; 0 if none was. A call says it, and a ring.
    #[must_use]
    pub const fn last_call(&self) -> u32 {
        self.last_call
    }

    /// This host calls.
    pub fn on_call(&mut self) {
        self.last_call += 1;
    }

    /// The other rings, and has taken call number `last_call` last: whether it has forgotten the link that is here.
    #[must_use]
    pub fn is_forgotten_by(&self, last_call: u32) -> bool {
        last_call == self.last_call
    }

    /// What to do now, as the link is needed and not there. The first question begins the wait.
    pub fn poll_next(&mut self, now_ns: u64) -> Next {
        if self.is_caller {
            return Next::Call;
        }
        let since_ns = *self.awaited_since_ns.get_or_insert(now_ns);
        match self.ring {
            Ring::Silent if self.is_overdue(since_ns, now_ns) => Next::Ring,
            Ring::Silent => Next::Wait,
            Ring::Open | Ring::Over { .. } if self.is_over(now_ns) => Next::GiveUp,
            Ring::Open | Ring::Over { .. } => Next::Wait,
        }
    }

    /// Whether what came of the ring proves that nobody will call.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        match self.ring {
            Ring::Silent | Ring::Open => false,
            Ring::Over { at_ns } => now_ns.saturating_sub(at_ns) >= RING_PATIENCE_NS,
        }
    }

    /// This host has rung: because it was to, or to say something.
    pub fn on_rung(&mut self) {
        self.ring = Ring::Open;
    }

    /// The other has said over the ring that it leaves.
    pub fn on_left(&mut self, now_ns: u64) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::LeaveForgotten) {
            self.ring = Ring::Over { at_ns: u64::MAX };
            return;
        }
        self.on_ring_ended(now_ns);
    }

    /// The ring was refused, or has ended.
    pub fn on_ring_ended(&mut self, now_ns: u64) {
        if self.ring == Ring::Open {
            self.ring = Ring::Over { at_ns: now_ns };
        }
    }

    /// The ring is not needed any more.
    pub fn end_ring(&mut self) {
        self.ring = Ring::Silent;
    }

    /// The other has called, and said which call this is.
    pub fn on_called(&mut self, number: u32) {
        (self.awaited_since_ns, self.is_forgotten, self.ring) = (None, false, Ring::Silent);
        self.last_call = number;
    }

    /// The link has ended here while nothing needed it.
    pub fn on_forgotten(&mut self) {
        self.is_forgotten = true;
    }

    fn is_overdue(&self, since_ns: u64, now_ns: u64) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::NeverRung) {
            return self.is_forgotten;
        }
        self.is_forgotten || now_ns.saturating_sub(since_ns) >= CALL_PATIENCE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host 1, which waits for host 0 from time 0 on.
    fn waiting() -> Contact {
        let mut contact = Contact::new(1, 0);
        assert_eq!(contact.poll_next(0), Next::Wait);
        contact
    }

    fn rung() -> Contact {
        let mut contact = waiting();
        assert_eq!(contact.poll_next(CALL_PATIENCE_NS - 1), Next::Wait);
        assert_eq!(contact.poll_next(CALL_PATIENCE_NS), Next::Ring);
        contact.on_rung();
        contact
    }

    #[test]
    fn the_lower_host_calls_at_once() {
        assert_eq!(Contact::new(0, 1).poll_next(0), Next::Call);
    }

    #[test]
    fn the_higher_host_rings_when_it_has_waited_and_waits_on_while_the_ring_stands() {
        let mut contact = rung();
        assert_eq!(contact.poll_next(u64::MAX), Next::Wait, "a late host is not a dead one");
        contact.on_called(1);
        assert_eq!(contact.poll_next(u64::MAX), Next::Wait, "this is another wait");
    }

    #[test]
    fn a_call_may_come_for_a_while_behind_the_end_of_a_ring() {
        for leaves in [false, true] {
            let mut contact = rung();
            if leaves {
                contact.on_left(CALL_PATIENCE_NS);
            }
            // The first word stands.
            let end = CALL_PATIENCE_NS + RING_PATIENCE_NS;
            contact.on_ring_ended(if leaves { end } else { CALL_PATIENCE_NS });
            assert_eq!(contact.poll_next(end - 1), Next::Wait);
            assert_eq!(contact.poll_next(end), Next::GiveUp);
        }
    }

    #[test]
    fn a_link_that_was_there_is_rung_for_at_once() {
        let mut contact = waiting();
        contact.on_called(1);
        contact.on_forgotten();
        assert_eq!(contact.poll_next(5), Next::Ring);
    }

    #[test]
    fn a_ring_from_before_the_last_call_is_no_sign_of_a_forgotten_link() {
        let (mut caller, mut called) = (Contact::new(0, 1), Contact::new(1, 0));
        let late = called.last_call();
        caller.on_call();
        called.on_called(caller.last_call());
        assert!(!caller.is_forgotten_by(late), "it was on its way before the call was taken");
        called.on_forgotten();
        assert!(caller.is_forgotten_by(called.last_call()));
    }
}
