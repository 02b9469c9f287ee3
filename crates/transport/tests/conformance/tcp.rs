//! Tests of TCP only.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use tributary_transport::{
    ConnectError, Inject, Link, ListenError, Listener, ReceiveError, SendError, Sent, TcpAcceptor,
    TcpOptions, connect_tcp, connect_tcp_start, wait,
};

use tributary_wire::frame::announcing_code;

use crate::common::{
    TIMEOUT, accept_one, authentication_key, check, expect, expect_failure, frame, frame_bytes,
    guarded, send, tcp_links,
};

fn acceptor() -> (TcpAcceptor, SocketAddr) {
    let options = TcpOptions::new(1000).unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let acceptor = TcpAcceptor::bind(any_port, options).unwrap();
    let address = acceptor.address().unwrap();
    (acceptor, address)
}

#[test]
fn frames_in_pieces_are_put_together() {
    guarded("frames_in_pieces_are_put_together", || {
        let (mut acceptor, address) = acceptor();
        let mut raw = TcpStream::connect(address).unwrap();
        raw.set_nodelay(true).unwrap();
        let mut link = accept_one(&mut acceptor);
        for piece_bytes in [1, 7, 63, 64, 65, 500] {
            let bytes = [frame_bytes(0, 300), frame_bytes(1, 0), frame_bytes(2, 1000)].concat();
            for piece in bytes.chunks(piece_bytes) {
                // What is there so far never counts as a frame too early.
                raw.write_all(piece).unwrap();
            }
            for (sequence, length) in [(0, 300), (1, 0), (2, 1000)] {
                expect(&mut link, sequence, length);
            }
        }
    });
}

#[test]
fn half_taken_frames_are_finished_by_later_calls() {
    guarded("half_taken_frames_are_finished_by_later_calls", || {
        let (mut acceptor, address) = acceptor();
        let mut raw = TcpStream::connect(address).unwrap();
        let mut link = accept_one(&mut acceptor);
        let reader = thread::spawn(move || {
            // Small odd reads, so that the sender is often stopped in the middle of a frame.
            let (mut all, mut piece) = (Vec::new(), [0; 1237]);
            loop {
                match raw.read(&mut piece).unwrap() {
                    0 => return all,
                    got => all.extend_from_slice(&piece[..got]),
                }
            }
        });
        const FRAMES: u32 = 20_000;
        (0..FRAMES).for_each(|sequence| send(&mut link, sequence, 997));
        drop(link);
        let all = reader.join().unwrap();
        let frames = all.chunks(64 + 997).zip(0..);
        assert_eq!(all.len(), FRAMES as usize * (64 + 997));
        for (bytes, sequence) in frames {
            assert!(bytes == frame_bytes(sequence, 997), "frame {sequence}");
        }
    });
}

/// The kernel resets a connection that is closed with unread input.
#[test]
fn what_is_confirmed_survives_a_reset() {
    guarded("what_is_confirmed_survives_a_reset", || {
        let (mut acceptor, address) = acceptor();
        let mut staying = connect_tcp(address, TcpOptions::new(1000).unwrap(), TIMEOUT).unwrap();
        let mut going = accept_one(&mut acceptor);
        send(&mut staying, 0, 100);
        send(&mut going, 1, 100);
        while going.unacknowledged_bytes() > 0 || staying.unacknowledged_bytes() > 0 {
            thread::yield_now();
        }
        drop(going);
        let (header, payload) = frame(2, 100);
        while staying.send(&header, &payload) != Err(SendError::Closed) {
            thread::yield_now();
        }
        expect(&mut staying, 1, 100);
        assert_eq!(expect_failure(&mut staying), ReceiveError::Closed);
    });
}

#[test]
fn what_the_peer_has_no_room_for_is_unacknowledged_until_it_reads_or_goes() {
    guarded("what_the_peer_has_no_room_for_is_unacknowledged_until_it_reads_or_goes", || {
        for reads in [true, false] {
            let (mut acceptor, address) = acceptor();
            let options = TcpOptions::new(1000).unwrap();
            let mut link = connect_tcp(address, options, TIMEOUT).unwrap();
            let peer = accept_one(&mut acceptor);
            assert_eq!(link.unacknowledged_bytes(), 0);
            let (header, payload) = frame(0, 1000);
            while link.send(&header, &payload).unwrap() == Sent::Taken {}
            assert!(link.unacknowledged_bytes() > 0);
            let mut peer = reads.then_some(peer);
            while link.unacknowledged_bytes() > 0 {
                if let Some(peer) = &mut peer {
                    // Whole frames only: the rest of a half-taken one isn't the kernel's yet.
                    let _ = peer.receive().unwrap();
                }
            }
        }
    });
}

#[test]
fn a_started_connection_is_usable_at_once() {
    guarded("a_started_connection_is_usable_at_once", || {
        let (mut acceptor, address) = acceptor();
        let mut link = connect_tcp_start(address, TcpOptions::new(1000).unwrap()).unwrap();
        send(&mut link, 0, 100);
        let mut accepted = accept_one(&mut acceptor);
        expect(&mut accepted, 0, 100);
        send(&mut accepted, 1, 10);
        expect(&mut link, 1, 10);
    });
}

#[test]
fn a_refused_connection_says_so() {
    guarded("a_refused_connection_says_so", || {
        // A port that was free a moment ago, with nobody listening.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let options = TcpOptions::new(1000).unwrap();
        let error = connect_tcp(address, options, TIMEOUT).err();
        assert!(matches!(error, Some(ConnectError::Os { call: "connect", .. })), "{error:?}");
        if let Ok(mut link) = connect_tcp_start(address, options) {
            while link.receive().is_ok() {
                let _ = wait(slice::from_mut(&mut link), Duration::ZERO, Some(TIMEOUT)).unwrap();
            }
        }
    });
}

#[test]
fn silence_times_out() {
    guarded("silence_times_out", || {
        // A listener whose queue is full doesn't answer; 192.0.2.0/24 would need a network.
        let queue = full_queue();
        let options = TcpOptions::new(1000).unwrap();
        let timeout = Duration::from_millis(50);
        let begun = Instant::now();
        let error = connect_tcp(queue.1, options, timeout).err();
        assert_eq!(error, Some(ConnectError::TimedOut { timeout }));
        assert!(begun.elapsed() >= timeout);
    });
}

/// A listener that accepts nobody, with connections that fill its queue.
fn full_queue() -> (rustix::fd::OwnedFd, SocketAddr, Vec<TcpStream>) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&listener, 1).unwrap();
    let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
    }
    (listener, address, waiting)
}

#[test]
fn a_reset_is_a_close_after_what_came_before() {
    guarded("a_reset_is_a_close_after_what_came_before", || {
        let (mut acceptor, address) = acceptor();
        let raw = TcpStream::connect(address).unwrap();
        let mut link = accept_one(&mut acceptor);
        send(&mut link, 0, 10);
        // Unread bytes turn the close into a reset.
        drop(raw);
        assert_eq!(expect_failure(&mut link), ReceiveError::Closed);
        let (header, payload) = crate::common::frame(1, 10);
        let refused = (0..1000).find_map(|_| link.send(&header, &payload).err());
        assert_eq!(refused, Some(SendError::Closed));
    });
}

#[test]
fn two_cannot_listen_in_one_place() {
    let (_acceptor, address) = acceptor();
    let error = TcpAcceptor::bind(address, TcpOptions::new(1000).unwrap()).err();
    assert_eq!(error, Some(ListenError::InUse));
}

#[test]
fn nobody_to_accept_is_no_error() {
    let (mut acceptor, _) = acceptor();
    assert!(acceptor.accept(Instant::now()).unwrap().is_none());
    assert_eq!(acceptor.deadline(), None);
}

#[test]
fn an_authenticated_link_takes_nothing_else_and_names_who_sent_it() {
    guarded("an_authenticated_link_takes_nothing_else_and_names_who_sent_it", || {
        let (header, payload) = frame(1, 100);
        let code = authentication_key(5).code(&header, &payload).to_bytes();
        let authenticated = [&announcing_code(header)[..], &payload, &code].concat();
        let altered = |at: usize| {
            let mut bytes = authenticated.clone();
            bytes[at] ^= 1;
            bytes
        };
        let other = authentication_key(6).code(&header, &payload).to_bytes();
        let wrong_key = [&announcing_code(header)[..], &payload, &other].concat();
        // A number of the header, the first and the last byte of the payload, the code.
        let forgeries = [28, 64, 163, 164, 179].map(altered);
        let forgeries = forgeries.into_iter().chain([wrong_key, frame_bytes(1, 100)]);
        for forgery in forgeries {
            let (mut up, mut down) = tcp_links(1000);
            down.authenticate(authentication_key(5));
            assert_eq!(up.inject(&authenticated), Ok(Sent::Taken));
            assert_eq!(up.inject(&forgery), Ok(Sent::Taken));
            expect(&mut down, 1, 100);
            let peer = Some(up.local_address().unwrap());
            assert_eq!(expect_failure(&mut down), ReceiveError::NotAuthentic { peer });
        }
    });
}

#[test]
fn where_codes_tell_the_order_no_frame_counts_twice_or_out_of_turn() {
    guarded("where_codes_tell_the_order_no_frame_counts_twice_or_out_of_turn", || {
        let (header, payload) = frame(1, 100);
        let coded = |number| {
            let code =
                authentication_key(5).for_frame_number(number).code(&header, &payload).to_bytes();
            [&announcing_code(header)[..], &payload, &code].concat()
        };
        let unnumbered = authentication_key(5).code(&header, &payload).to_bytes();
        let unnumbered = [&announcing_code(header)[..], &payload, &unnumbered].concat();
        for forgery in [coded(2), coded(3), coded(5), unnumbered] {
            let (mut up, mut down) = tcp_links(1000);
            // The first frame was received before the key was known.
            down.authenticate_in_order(authentication_key(5), 1);
            for number in 1..4 {
                assert_eq!(up.inject(&coded(number)), Ok(Sent::Taken));
                expect(&mut down, 1, 100);
            }
            assert_eq!(up.inject(&forgery), Ok(Sent::Taken));
            let peer = Some(up.local_address().unwrap());
            assert_eq!(expect_failure(&mut down), ReceiveError::NotAuthentic { peer });
        }
    });
}

#[test]
fn a_link_without_a_key_hands_codes_to_its_owner() {
    guarded("a_link_without_a_key_hands_codes_to_its_owner", || {
        let (mut up, mut down) = tcp_links(1000);
        up.authenticate(authentication_key(5));
        for length in [0, 1, 997] {
            send(&mut up, 7, length);
            loop {
                if let Some(frame) = down.receive().unwrap() {
                    check(&frame, 7, length);
                    assert!(authentication_key(5).authenticates(&frame));
                    assert!(!authentication_key(6).authenticates(&frame));
                    break;
                }
            }
        }
    });
}
