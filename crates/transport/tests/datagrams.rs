//! Goal: frames arrive whole, in batches and trains, and datagrams that are no frames are dropped.
//! Method: sockets on loopback, seeded lengths and bytes. The tests send no more than the buffers
//! hold, because the layers above recover what the kernel drops.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_transport::udp::{
    DATAGRAM_PAYLOAD_BYTES_MAX, FILTERED_CAPABILITIES_MAX, WHOLE_PAYLOAD_BYTES,
};
use tributary_transport::{AuthenticationKey, Datagram, DatagramSocket, SendError, Sent};
use tributary_wire::frame::{
    Edge, HEADER_BYTES, Header, MAGIC, Message, Part, RetransmitState, Shape, Target, Versions,
    announcing_code,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, FrameKey, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

const WATCHDOG: Duration = Duration::from_secs(30);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn header(number: u32, payload_bytes: u32) -> Header {
    let part = Part {
        operation: OperationNumber(number),
        segment: SegmentIndex(0),
        sequence: Sequence(number),
        shape: Shape::new(Operator::BitXor, Datatype::U8, payload_bytes).unwrap(),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState { attempt: number as u8, behind: 0 },
    };
    let edge = Edge {
        group: GroupId(1),
        epoch: Epoch(2),
        child: ChildIndex(3),
        capability: Capability::from_bytes([4; 16]),
        version: Versions::SPOKEN.newest,
    };
    Header { edge, message: Message::Request(part) }
}

fn payload(number: u32, bytes: u32) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(u64::from(number));
    (0..bytes).map(|_| random.random()).collect()
}

fn flush(socket: &mut DatagramSocket) {
    let until = Instant::now() + WATCHDOG;
    while socket.flush() == Sent::Full {
        assert!(Instant::now() < until, "no room for ever");
    }
}

/// Receives `count` frames.
fn receive(socket: &mut DatagramSocket, count: usize) -> Vec<(Header, Vec<u8>, SocketAddr)> {
    let until = Instant::now() + WATCHDOG;
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(Instant::now() < until, "{} of {count} frames came", frames.len());
        if let Some(datagram) = socket.receive().unwrap() {
            let frame = datagram.frame;
            frames.push((frame.header, frame.payload.to_vec(), datagram.source));
        }
    }
    assert!(socket.receive().unwrap().is_none(), "no more than was sent");
    frames
}

#[test]
fn frames_of_any_length_arrive_as_they_were_sent_at_any_receiver() {
    let mut sender = DatagramSocket::bind(loopback()).unwrap();
    let mut receivers = [(); 3].map(|()| DatagramSocket::bind(loopback()).unwrap());
    let addresses = receivers.each_ref().map(|socket| socket.address().unwrap());
    let mut random = Pcg64::seed_from_u64(7);
    let mut sent: [Vec<(u32, u32)>; 3] = Default::default();
    for number in 0..40 {
        let bytes = match random.random_range(0..6) {
            0 => DATAGRAM_PAYLOAD_BYTES_MAX,
            1 => random.random_range(1..=DATAGRAM_PAYLOAD_BYTES_MAX),
            2 => WHOLE_PAYLOAD_BYTES,
            _ => random.random_range(1..=200),
        };
        let whom = random.random_range(0..3);
        sent[whom].push((number, bytes));
        let header = header(number, bytes).encode();
        let outcome =
            sender.send(Some(addresses[whom]), &header, &payload(number, bytes), None).unwrap();
        assert_eq!(outcome, Sent::Taken);
    }
    flush(&mut sender);
    for (receiver, sent) in receivers.iter_mut().zip(sent) {
        let frames = receive(receiver, sent.len());
        for ((got, bytes, source), (number, length)) in frames.into_iter().zip(sent) {
            assert_eq!(got, header(number, length));
            assert!(bytes == payload(number, length), "frame {number}");
            assert_eq!(source, sender.address().unwrap());
        }
    }
    assert_eq!(sender.stats().sent, 40);
}

#[test]
fn copies_take_one_system_call_and_reach_all_targets() {
    let mut sender = DatagramSocket::bind(loopback()).unwrap();
    let mut receivers = [(); 3].map(|()| DatagramSocket::bind(loopback()).unwrap());
    let mut targets = receivers.each_ref().map(|socket| socket.address().unwrap()).to_vec();
    // The second time the last target comes twice in a row, with the same bytes at one place.
    targets.push(targets[2]);
    for (number, to) in [(1, &targets[..3]), (2, &targets[..]), (3, &targets[..0])] {
        let header = header(number, 1000).encode();
        assert_eq!(sender.send_copies(to, &header, &payload(number, 1000)), Ok(Sent::Taken));
    }
    assert_eq!(sender.stats().send_calls, 0, "nothing goes out before the flush");
    flush(&mut sender);
    assert_eq!((sender.stats().send_calls, sender.stats().sent), (1, 7));
    for (receiver, twice) in receivers.iter_mut().zip([false, false, true]) {
        let numbers = if twice { &[1, 2, 2][..] } else { &[1, 2] };
        let frames = receive(receiver, numbers.len());
        for ((got, bytes, source), number) in frames.into_iter().zip(numbers) {
            assert_eq!((got, bytes), (header(*number, 1000), payload(*number, 1000)));
            assert_eq!(source, sender.address().unwrap());
        }
    }
    let short = header(1, 1000).encode();
    assert!(sender.send_copies(&targets, &short, &payload(1, 999)).is_err());
}

#[test]
fn many_frames_take_few_system_calls() {
    let mut sender = DatagramSocket::bind(loopback()).unwrap();
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    sender.connect(receiver.address().unwrap()).unwrap();
    let frames = 60;
    for number in 0..frames {
        // The last of a train may be shorter.
        let bytes = if number == frames - 1 { 5 } else { 1000 };
        let header = header(number, bytes).encode();
        assert_eq!(sender.send(None, &header, &payload(number, bytes), None), Ok(Sent::Taken));
    }
    assert_eq!(sender.stats().send_calls, 0, "nothing goes out before the flush");
    flush(&mut sender);
    let got = receive(&mut receiver, frames as usize);
    assert_eq!(got[59].1, payload(59, 5));
    // Two where the kernel takes no trains.
    assert!(sender.stats().send_calls <= 2, "{:?}", sender.stats());
    assert!(receiver.stats().receive_calls <= 8, "{:?}", receiver.stats());
}

#[test]
fn what_is_no_frame_is_dropped_and_counted() {
    let stranger = UdpSocket::bind(loopback()).unwrap();
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    let address = receiver.address().unwrap();
    let good = [header(1, 8).encode().as_slice(), &payload(1, 8)].concat();
    let mut bad_magic = good.clone();
    bad_magic[0] ^= 1;
    let too_long = [good.as_slice(), &[0]].concat();
    let cut: &[u8] = &good[..HEADER_BYTES + 7];
    for bytes in [&[], &MAGIC[..], &bad_magic, &too_long, cut, &good[..HEADER_BYTES - 1], &good] {
        stranger.send_to(bytes, address).unwrap();
    }
    let frames = receive(&mut receiver, 1);
    assert_eq!(frames[0].0, header(1, 8));
    assert_eq!(frames[0].2, stranger.local_addr().unwrap());
    assert_eq!(
        receiver.drop_counter().count(),
        4,
        "the kernel drops what does not begin as a frame"
    );
    assert_eq!(receiver.stats().garbage, 2);
}

/// Every capability and its neighbours, for as many capabilities as make each shape of a search.
#[test]
fn only_a_sender_with_a_known_capability_is_queued() {
    let stranger = UdpSocket::bind(loopback()).unwrap();
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    let address = receiver.address().unwrap();
    let send = |header: &Header| {
        stranger.send_to(&[&header.encode()[..], &[9]].concat(), address).unwrap();
    };
    // The first time may say that what came before is all.
    let come = |receiver: &mut DatagramSocket| {
        (0..2).find_map(|_| receiver.receive().unwrap().map(|datagram| datagram.frame.header))
    };
    let shown = |word: u32| {
        let mut bytes = [7; 16];
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        Capability::from_bytes(bytes)
    };
    let mut random = Pcg64::seed_from_u64(3);
    let mut dropped = 0;
    for count in [0, 1, 2, 4, 5, 9, 64, FILTERED_CAPABILITIES_MAX] {
        let mut known: Vec<u32> = (0..count).map(|_| random.random()).collect();
        if count > 1 {
            (known[0], known[1]) = (0, u32::MAX);
        }
        receiver.queue_holders(known.iter().map(|word| shown(*word))).unwrap();
        for word in known
            .iter()
            .chain(&[0, 1 << 31])
            .flat_map(|&it| [it.wrapping_sub(1), it, it.wrapping_add(1)])
        {
            let mut header = header(word, 1);
            header.edge.capability = shown(word);
            send(&header);
            let came = come(&mut receiver);
            assert_eq!(came, known.contains(&word).then_some(header), "{word:#x} of {count}");
            dropped += u64::from(came.is_none());
        }
        assert_eq!(receiver.drop_counter().count(), dropped);
    }
    let too_many = (0..=FILTERED_CAPABILITIES_MAX as u32).map(shown);
    assert!(receiver.queue_holders(too_many).is_err());
    send(&header(1, 1));
    assert_eq!(come(&mut receiver), None, "it keeps the filter that it had");
    receiver.queue_frames().unwrap();
    send(&header(1, 1));
    assert_eq!(receive(&mut receiver, 1)[0].0, header(1, 1));
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    let mut peer = DatagramSocket::bind(loopback()).unwrap();
    let stranger = UdpSocket::bind(loopback()).unwrap();
    receiver.connect(peer.address().unwrap()).unwrap();
    let target = receiver.address().unwrap();
    stranger.send_to(&header(1, 1).encode(), target).unwrap();
    assert_eq!(peer.send(Some(target), &header(2, 1).encode(), &[9], None), Ok(Sent::Taken));
    flush(&mut peer);
    assert_eq!(receive(&mut receiver, 1)[0].0, header(2, 1));
    assert_eq!(receiver.stats().garbage, 0);
}

#[test]
fn a_peer_that_is_gone_stops_nothing() {
    let mut socket = DatagramSocket::bind(loopback()).unwrap();
    let gone = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    socket.connect(gone).unwrap();
    for number in 0..100 {
        assert_eq!(socket.send(None, &header(number, 1).encode(), &[1], None), Ok(Sent::Taken));
        flush(&mut socket);
        assert!(socket.receive().unwrap().is_none());
    }
    let stats = socket.stats();
    assert_eq!(stats.sent + stats.unsent, 100);
}

#[test]
fn frames_that_no_datagram_carries_are_refused() {
    let mut socket = DatagramSocket::bind(loopback()).unwrap();
    let bytes = DATAGRAM_PAYLOAD_BYTES_MAX + 1;
    let refused =
        socket.send(Some(loopback()), &header(1, bytes).encode(), &payload(1, bytes), None);
    let max_bytes = DATAGRAM_PAYLOAD_BYTES_MAX;
    assert_eq!(refused, Err(SendError::TooLong { payload_bytes: bytes as usize, max_bytes }));
    let refused = socket.send(Some(loopback()), &header(1, 4).encode(), &[0; 3], None);
    assert_eq!(refused, Err(SendError::HeaderMismatch { payload_bytes: 3 }));
}

/// Lengths up to the longest, alone and as trains, alternately with and without codes.
#[test]
fn authenticated_frames_of_any_length_arrive_with_their_codes() {
    let key = AuthenticationKey::new(FrameKey::from_bytes([3; 16]));
    let mut sender = DatagramSocket::bind(loopback()).unwrap();
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    let target = Some(receiver.address().unwrap());
    let longest = [DATAGRAM_PAYLOAD_BYTES_MAX, WHOLE_PAYLOAD_BYTES, WHOLE_PAYLOAD_BYTES - 16];
    let train = [8_u32; 40].map(|bytes| bytes + 1);
    for (number, bytes) in (0..).zip(longest.into_iter().chain(train)) {
        let key = Some(&key).filter(|_| number % 7 != 3);
        let header = header(number, bytes).encode();
        assert_eq!(sender.send(target, &header, &payload(number, bytes), key), Ok(Sent::Taken));
        flush(&mut sender);
        let until = Instant::now() + WATCHDOG;
        let authenticated = loop {
            assert!(Instant::now() < until, "frame {number} is lost");
            if let Some(Datagram { frame, .. }) = receiver.receive().unwrap() {
                assert_eq!(frame.header.encode(), header);
                assert!(frame.payload == payload(number, bytes));
                break frame.code.is_some() && key.is_some_and(|key| key.authenticates(&frame));
            }
        };
        assert_eq!(authenticated, key.is_some(), "frame {number}");
    }
    assert_eq!(receiver.stats().garbage, 0);
}

/// A connected socket is told only how long a whole train is.
#[test]
fn trains_come_apart_at_a_connected_socket_authenticated_or_not() {
    let key = AuthenticationKey::new(FrameKey::from_bytes([5; 16]));
    for key in [None, Some(&key)] {
        let mut sender = DatagramSocket::bind(loopback()).unwrap();
        let mut receiver = DatagramSocket::bind(loopback()).unwrap();
        sender.connect(receiver.address().unwrap()).unwrap();
        receiver.connect(sender.address().unwrap()).unwrap();
        let lengths = [[700; 12].as_slice(), &[200], &[64; 9]].concat();
        for (number, &bytes) in (0..).zip(&lengths) {
            let header = header(number, bytes).encode();
            assert_eq!(sender.send(None, &header, &payload(number, bytes), key), Ok(Sent::Taken));
        }
        flush(&mut sender);
        let frames = receive(&mut receiver, lengths.len());
        for ((number, &length), (got, bytes, _)) in (0..).zip(&lengths).zip(frames) {
            assert_eq!(got, header(number, length));
            assert!(bytes == payload(number, length), "frame {number}");
        }
        assert_eq!(receiver.stats().garbage, 0);
    }
}

#[test]
fn an_authenticated_frame_without_all_of_its_code_is_garbage() {
    let key = AuthenticationKey::new(FrameKey::from_bytes([3; 16]));
    let stranger = UdpSocket::bind(loopback()).unwrap();
    let mut receiver = DatagramSocket::bind(loopback()).unwrap();
    let target = receiver.address().unwrap();
    let bytes = header(1, 8).encode();
    let code = key.code(&bytes, &payload(1, 8)).to_bytes();
    let whole = [&announcing_code(bytes)[..], &payload(1, 8), &code].concat();
    for cut in [64, 71, 72, 87] {
        stranger.send_to(&whole[..cut], target).unwrap();
    }
    let without_announcement = [&bytes[..], &payload(1, 8), &code].concat();
    stranger.send_to(&without_announcement, target).unwrap();
    stranger.send_to(&whole, target).unwrap();
    assert_eq!(receive(&mut receiver, 1)[0].0, header(1, 8));
    assert_eq!(receiver.stats().garbage, 5);
}
