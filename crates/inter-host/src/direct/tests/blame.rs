//! Goal: a host that goes after telling why is not blamed for going. Method: one host of a ring of four,
//! whose neighbours the test plays by a script, link by link.

use tributary_transport::{Listener as _, TcpAcceptor, TcpLink};
use tributary_wire::frame::{Part, RetransmitState, Shape, Target};
use tributary_wire::{OperationNumber, SegmentIndex, Sequence};

use super::*;

/// A third of its quarter is more than sockets hold.
const LONG_ELEMENTS: usize = 32 << 20;

/// Host 0, in an operation, and its links as hosts 1 (which it sends to) and 3 (which sends to it)
/// have them.
struct Scene {
    links: DirectLinks,
    /// Until it goes.
    next: Option<TcpLink>,
    previous: TcpLink,
    /// What the operation is on; it must outlive it.
    _vector: Vec<f32>,
}

impl Scene {
    fn new(elements: usize, identity: Identity) -> Self {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut listeners = [(); 4].map(|()| TcpAcceptor::bind(any_port, options()).unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.address().unwrap()).to_vec();
        let (own, _) = Listener::bind(Ipv4Addr::LOCALHOST.into(), None).unwrap();
        let mut links = DirectLinks::new(0, identity, own, addresses);
        let mut vector = vec![0_f32; elements];
        // SAFETY: the scene keeps the vector for as long as the links.
        unsafe { links.start(&allreduce_of(&mut vector, Algorithm::Ring)).unwrap() };
        let [_, next, _, previous] = &mut listeners;
        let (next, previous) = (accept(next, 1, identity), accept(previous, 3, identity));
        Self { links, next: Some(next), previous, _vector: vector }
    }

    /// Polls until the operation fails.
    fn failure(&mut self) -> Abort {
        patiently("the operation neither fails nor ends", || self.links.poll().err())
    }

    /// Sends until the next host's socket has been full for a while.
    fn fill_next(&mut self) {
        let mut full_rounds = 0;
        patiently("sockets hold everything", || {
            assert_eq!(self.links.poll(), Ok(false));
            let is_full = self.links.peers.flush() == Sent::Full;
            full_rounds = if is_full { full_rounds + 1 } else { 0 };
            (full_rounds == 20).then_some(())
        });
    }

    fn next(&mut self) -> &mut TcpLink {
        self.next.as_mut().expect("it has not gone")
    }
}

/// The link from host 0 to `host`.
fn accept(listener: &mut TcpAcceptor, host: u32, identity: Identity) -> TcpLink {
    let mut link = patiently("nobody calls", || listener.accept(Instant::now()).unwrap());
    if let Some(key) = identity.link_key([0, host]) {
        link.authenticate_in_order(key, 0);
    }
    link
}

/// Asks until there is an answer, or the watchdog barks.
fn patiently<T>(problem: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{problem}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Says something as `host`.
fn say(link: &mut TcpLink, identity: Identity, host: u16, message: Message) {
    let header = Header { edge: edge_of(identity, host), message }.encode();
    assert_eq!(link.send(&header, &[]), Ok(Sent::Taken));
}

/// The next abort from the host under test.
fn abort_heard(link: &mut TcpLink) -> Abort {
    patiently("it doesn't say why", || match link.receive().unwrap()?.header.message {
        Message::Abort(abort) => Some(abort),
        _ => None,
    })
}

fn fault_of_two() -> Abort {
    Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(2) }
}

#[test]
fn sending_to_a_host_that_told_why_and_went_blames_whom_it_named() {
    for identity in identities() {
        let mut scene = Scene::new(1000, identity);
        say(scene.next(), identity, 1, Message::Abort(fault_of_two()));
        scene.next = None;
        assert_eq!(scene.failure(), fault_of_two());
    }
}

/// The kernel of a host that goes with unread input resets the connection.
#[test]
fn a_reset_behind_the_reason_takes_nothing_away() {
    for identity in identities() {
        let mut scene = Scene::new(LONG_ELEMENTS, identity);
        scene.fill_next();
        say(scene.next(), identity, 1, Message::Abort(fault_of_two()));
        patiently("it is never confirmed", || {
            (scene.next().unacknowledged_bytes() == 0).then_some(())
        });
        scene.next = None;
        assert_eq!(scene.failure(), fault_of_two());
    }
}

/// Host 1 goes without a word, as if what it said were lost; host 3's word waits behind a part of what comes next.
#[test]
fn what_another_host_says_counts_more_than_an_ended_link() {
    for identity in identities() {
        let mut scene = Scene::new(1000, identity);
        let part = Part {
            operation: OperationNumber(1),
            segment: SegmentIndex(0),
            sequence: Sequence(0),
            shape: Shape::BARRIER,
            target: Target::All,
            has_data: false,
            retransmit: RetransmitState::default(),
        };
        say(&mut scene.previous, identity, 3, Message::Request(part));
        say(&mut scene.previous, identity, 3, Message::Abort(fault_of_two()));
        scene.next = None;
        patiently("the end isn't noticed", || {
            scene.links.check();
            scene.links.failed
        });
        assert_eq!(scene.failure(), fault_of_two());
    }
}

#[test]
fn a_host_that_says_nothing_is_named_for_its_ended_link() {
    for identity in identities() {
        let mut scene = Scene::new(1000, identity);
        scene.next = None;
        let lost = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(1) };
        assert_eq!(scene.failure(), lost);
        assert_eq!(abort_heard(&mut scene.previous), lost);
    }
}

#[test]
fn a_full_link_carries_the_reason_once_there_is_room() {
    for identity in identities() {
        let mut scene = Scene::new(LONG_ELEMENTS, identity);
        scene.fill_next();
        assert!(!scene.links.peers.spread(fault_of_two().into()), "there is room for it");
        let mut heard = None;
        patiently("it doesn't say why", || {
            while let Some(frame) = scene.next().receive().unwrap() {
                if let Message::Abort(abort) = frame.header.message {
                    heard = Some(abort);
                }
            }
            scene.links.peers.spread(fault_of_two().into()).then_some(()).and(heard)
        });
        assert_eq!(heard, Some(fault_of_two()));
    }
}

/// Host 0 has called, and host 1 has not accepted it.
#[test]
fn a_host_that_has_called_is_told_and_a_later_one_is_turned_away() {
    for identity in identities() {
        let (mut hosts, addresses) = listening(2, AlgorithmChoice::Ring, identity);
        let mut caller = connect_tcp(addresses[1], options(), WATCHDOG).unwrap();
        if let Some(key) = identity.link_key([0, 1]) {
            caller.authenticate_in_order(key, 0);
        }
        say(&mut caller, identity, 0, Message::Join);
        hosts[1].abort(AbortReason::MemberAborted);
        let aborted = Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(1) };
        assert_eq!(abort_heard(&mut caller), aborted);
        assert!(connect_tcp(addresses[1], options(), WATCHDOG).is_err());
    }
}
