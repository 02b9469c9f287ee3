//! Pairs of links, frames to send over them, and a watchdog.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use tributary_transport::fault::{FaultPlan, FaultyLink};
use tributary_transport::{
    AuthenticationKey, Frame, Inject, Link, Listener, Sent, ShmListener, ShmOptions, TcpAcceptor,
    TcpLink, TcpOptions, connect_shm, connect_tcp,
};
use tributary_wire::frame::{
    Edge, HEADER_BYTES, Header, Message, Part, RetransmitState, Shape, Target, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, FrameKey, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

pub(crate) type Pair = (Box<dyn Inject>, Box<dyn Inject>);
pub(crate) type MakePair = fn(u32) -> Pair;

/// Long enough for any machine; only a test that hangs reaches it.
const WATCHDOG: Duration = Duration::from_secs(120);
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `body`, and fails instead of hanging.
pub(crate) fn guarded(name: &'static str, body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let worker = thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(WATCHDOG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs"),
        // The sender is gone without a word when the body panicked; `join` says how.
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Accepts the link that somebody is connecting.
pub(crate) fn accept_one<L: Listener>(listener: &mut L) -> L::Link {
    let begun = Instant::now();
    loop {
        if let Some(link) = listener.accept(Instant::now()).unwrap() {
            return link;
        }
        assert!(begun.elapsed() < TIMEOUT, "nobody connects");
        thread::yield_now();
    }
}

pub(crate) fn shm_pair(payload_max_bytes: u32) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    let options = ShmOptions::new(payload_max_bytes).unwrap();
    let mut listener = ShmListener::bind(&path, 0o600, options, TIMEOUT).unwrap();
    let connected = connect_shm(&path, options, TIMEOUT).unwrap();
    let accepted = accept_one(&mut listener);
    (Box::new(connected), Box::new(accepted))
}

pub(crate) fn tcp_pair(payload_max_bytes: u32) -> Pair {
    let (connected, accepted) = tcp_links(payload_max_bytes);
    (Box::new(connected), Box::new(accepted))
}

pub(crate) fn authenticated_tcp_pair(payload_max_bytes: u32) -> Pair {
    let (mut connected, mut accepted) = tcp_links(payload_max_bytes);
    connected.authenticate(authentication_key(5));
    accepted.authenticate(authentication_key(5));
    (Box::new(connected), Box::new(accepted))
}

pub(crate) fn ordered_tcp_pair(payload_max_bytes: u32) -> Pair {
    let (mut connected, mut accepted) = tcp_links(payload_max_bytes);
    connected.authenticate_in_order(authentication_key(5), 0);
    accepted.authenticate_in_order(authentication_key(5), 0);
    (Box::new(connected), Box::new(accepted))
}

pub(crate) fn tcp_links(payload_max_bytes: u32) -> (TcpLink, TcpLink) {
    let options = TcpOptions::new(payload_max_bytes).unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut acceptor = TcpAcceptor::bind(any_port, options).unwrap();
    let connected = connect_tcp(acceptor.address().unwrap(), options, TIMEOUT).unwrap();
    (connected, accept_one(&mut acceptor))
}

pub(crate) fn authentication_key(byte: u8) -> AuthenticationKey {
    AuthenticationKey::new(FrameKey::from_bytes([byte; 16]))
}

pub(crate) fn faultless_pair(payload_max_bytes: u32) -> Pair {
    let (one, other) = tcp_pair(payload_max_bytes);
    let plan = FaultPlan { seed: 1, ..FaultPlan::default() };
    (Box::new(FaultyLink::new(one, plan)), Box::new(FaultyLink::new(other, plan)))
}

/// A link with delays and no other faults passes the whole suite.
pub(crate) fn slow_pair(payload_max_bytes: u32) -> Pair {
    let (one, other) = shm_pair(payload_max_bytes);
    let plan = FaultPlan {
        seed: 2,
        delays_per_million: 100_000,
        delay_calls_max: 20,
        ..FaultPlan::default()
    };
    (Box::new(FaultyLink::new(one, plan)), Box::new(FaultyLink::new(other, plan)))
}

/// Frame number `sequence` with `payload_bytes` bytes that depend on it.
pub(crate) fn frame(sequence: u32, payload_bytes: usize) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let shape = if payload_bytes == 0 {
        Shape::BARRIER
    } else {
        Shape::new(Operator::Sum, Datatype::U8, payload_bytes as u32).unwrap()
    };
    let part = Part {
        operation: OperationNumber(7),
        segment: SegmentIndex(8),
        sequence: Sequence(sequence),
        shape,
        target: Target::All,
        has_data: payload_bytes != 0,
        retransmit: RetransmitState::default(),
    };
    let edge = Edge {
        group: GroupId(4),
        epoch: Epoch(5),
        child: ChildIndex(6),
        capability: Capability::from_bytes([9; 16]),
        version: Versions::SPOKEN.newest,
    };
    let mut payload = vec![0; payload_bytes];
    Pcg64::seed_from_u64(u64::from(sequence)).fill_bytes(&mut payload);
    (Header { edge, message: Message::Request(part) }.encode(), payload)
}

/// The same as bytes in a row.
pub(crate) fn frame_bytes(sequence: u32, payload_bytes: usize) -> Vec<u8> {
    let (header, payload) = frame(sequence, payload_bytes);
    [&header[..], &payload[..]].concat()
}

/// Compares a frame that arrived with the one that was sent.
pub(crate) fn check(got: &Frame<'_>, sequence: u32, payload_bytes: usize) {
    let (header, payload) = frame(sequence, payload_bytes);
    assert_eq!(got.header.encode(), header, "header of frame {sequence}");
    assert!(got.payload == payload, "payload of frame {sequence}");
}

/// Sends, however long it takes.
pub(crate) fn send(link: &mut (impl Link + ?Sized), sequence: u32, payload_bytes: usize) {
    let (header, payload) = frame(sequence, payload_bytes);
    while link.send(&header, &payload).unwrap() == Sent::Full {
        thread::yield_now();
    }
    flush(link);
}

pub(crate) fn flush(link: &mut (impl Link + ?Sized)) {
    while link.flush().unwrap() == Sent::Full {
        thread::yield_now();
    }
}

/// Receives, however long it takes.
pub(crate) fn expect(link: &mut (impl Link + ?Sized), sequence: u32, payload_bytes: usize) {
    loop {
        if let Some(got) = link.receive().unwrap() {
            return check(&got, sequence, payload_bytes);
        }
        thread::yield_now();
    }
}

/// Polls until the link reports its failure; a frame before that is one too many.
pub(crate) fn expect_failure(link: &mut (impl Link + ?Sized)) -> tributary_transport::ReceiveError {
    loop {
        match link.receive() {
            Ok(None) => thread::yield_now(),
            Ok(Some(got)) => panic!("a frame nobody sent: {:?}", got.header),
            Err(error) => {
                let again = link.receive().err();
                assert_eq!(again, Some(error), "a failed link stays failed");
                return error;
            }
        }
    }
}
