//! Tests of shared memory only: false greetings and false memory.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::slice;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tributary_transport::shm::HALF_OPEN_MAX;
use tributary_transport::{
    AcceptError, Armed, ConnectError, HandshakeError, Link, ListenError, Listener, ReceiveError,
    SendError, Sent, ShmLink, ShmListener, ShmOptions, connect_shm, wait,
};

use crate::common::{TIMEOUT, accept_one, expect, frame, guarded, send};

const PAYLOAD_MAX_BYTES: u32 = 1000;
const ALL_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A folder of its own for the socket of one test.
struct SocketFolder {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> SocketFolder {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    SocketFolder { _folder: folder, path }
}

fn options() -> ShmOptions {
    ShmOptions::new(PAYLOAD_MAX_BYTES).unwrap()
}

fn listen(path: &Path) -> ShmListener {
    ShmListener::bind(path, 0o600, options(), TIMEOUT).unwrap()
}

fn hello(payload_max_bytes: u32, ring_bytes: u64) -> Vec<u8> {
    let mut bytes = b"TRIBSHM\n\x01\0\0\0".to_vec();
    bytes.extend(payload_max_bytes.to_le_bytes());
    bytes.extend(ring_bytes.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn good_hello() -> Vec<u8> {
    hello(PAYLOAD_MAX_BYTES, options().ring_bytes() as u64)
}

fn good_bytes() -> u64 {
    (rustix::param::page_size() + 2 * options().ring_bytes()) as u64
}

fn memory(bytes: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("test", flags).unwrap();
    ftruncate(&memory, bytes).unwrap();
    fcntl_add_seals(&memory, seals).unwrap();
    memory
}

fn good_memory() -> OwnedFd {
    memory(good_bytes(), MemfdFlags::empty(), ALL_SEALS)
}

/// Connects, and sends `bytes` with the descriptors `passed`.
fn greet(path: &Path, bytes: &[u8], passed: &[&OwnedFd]) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = passed.iter().map(|fd| fd.as_fd()).collect();
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    let sent = sendmsg(&stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
    stream
}

fn refusal(listener: &mut ShmListener) -> HandshakeError {
    match listener.accept(Instant::now()) {
        Err(AcceptError::Refused(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(link) => panic!("accepted: {}", link.is_some()),
    }
}

#[test]
fn the_lower_limit_of_the_two_sides_holds() {
    let place = place();
    let mut listener = listen(&place.path);
    let good = good_memory();
    for (theirs, both) in [(PAYLOAD_MAX_BYTES - 1, 999), (PAYLOAD_MAX_BYTES + 1, 1000)] {
        let ring = options().ring_bytes() as u64;
        let _stream = greet(&place.path, &hello(theirs, ring), &[&good]);
        let link = loop {
            if let Some(link) = listener.accept(Instant::now()).unwrap() {
                break link;
            }
        };
        assert_eq!(link.payload_max_bytes(), both);
    }
}

#[test]
fn lying_connectors_are_refused() {
    let place = place();
    let mut listener = listen(&place.path);
    let (max, ring) = (PAYLOAD_MAX_BYTES, options().ring_bytes() as u64);
    let mut refused = |hello: &[u8], passed: &[&OwnedFd]| {
        let _stream = greet(&place.path, hello, passed);
        refusal(&mut listener)
    };
    let good = good_memory();
    assert_eq!(refused(&[b'x'; 32], &[&good]), HandshakeError::BadMagic);
    for bytes in [0, 1, 2048, ring / 2 + 1, ring * 2, 1 << 40, u64::MAX] {
        let refusal = refused(&hello(max, bytes), &[&good]);
        assert!(matches!(refusal, HandshakeError::RingBytes { .. }), "{bytes}: {refusal}");
    }
    assert_eq!(refused(&good_hello(), &[]), HandshakeError::DescriptorCount(0));
    assert!(matches!(refused(&good_hello(), &[&good; 2]), HandshakeError::DescriptorCount(2)));
    assert!(matches!(refused(&good_hello(), &[&good; 8]), HandshakeError::DescriptorCount(2..)));
    for bytes in [0, good_bytes() - 1, good_bytes() + 1, 2 * good_bytes()] {
        let short = memory(bytes, MemfdFlags::empty(), ALL_SEALS);
        assert!(matches!(refused(&good_hello(), &[&short]), HandshakeError::MemoryBytes { .. }));
    }
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
        let open = memory(good_bytes(), MemfdFlags::empty(), seals);
        assert_eq!(refused(&good_hello(), &[&open]), HandshakeError::NotSealedMemory);
    }
    let unwritable = memory(good_bytes(), MemfdFlags::empty(), ALL_SEALS | SealFlags::WRITE);
    assert!(matches!(refused(&good_hello(), &[&unwritable]), HandshakeError::Map(_)));
    let plain = OwnedFd::from(tempfile::tempfile().unwrap());
    assert_eq!(refused(&good_hello(), &[&plain]), HandshakeError::NotSealedMemory);
    drop(greet(&place.path, &good_hello()[..31], &[&good]));
    assert_eq!(refusal(&mut listener), HandshakeError::Closed);
    assert!(listener.accept(Instant::now()).unwrap().is_none());
}

#[test]
fn memory_of_huge_pages_is_refused() {
    let place = place();
    let mut listener = listen(&place.path);
    // Making it needs no huge page to exist; only its size has to be a multiple of one.
    let huge = memory(2 << 20, MemfdFlags::HUGETLB, ALL_SEALS);
    let _stream = greet(&place.path, &good_hello(), &[&huge]);
    assert_eq!(refusal(&mut listener), HandshakeError::NotSealedMemory);
}

#[test]
fn a_greeting_may_come_in_pieces() {
    guarded("a_greeting_may_come_in_pieces", || {
        use std::io::Write;
        let place = place();
        let mut listener = listen(&place.path);
        let memory = good_memory();
        let hello = good_hello();
        let mut stream = greet(&place.path, &hello[..1], &[&memory]);
        for byte in &hello[1..] {
            assert!(listener.accept(Instant::now()).unwrap().is_none());
            assert!(listener.deadline().is_some());
            stream.write_all(slice::from_ref(byte)).unwrap();
        }
        accept_one(&mut listener);
        assert_eq!(listener.deadline(), None);
    });
}

#[test]
fn silent_connectors_time_out_and_hold_nobody_up() {
    guarded("silent_connectors_time_out_and_hold_nobody_up", || {
        let place = place();
        let mut listener = listen(&place.path);
        let begun = Instant::now();
        let silent: Vec<_> = (0..10).map(|_| UnixStream::connect(&place.path).unwrap()).collect();
        let mut connected = connect_shm(&place.path, options(), TIMEOUT).unwrap();
        let mut accepted = listener.accept(begun).unwrap().expect("an honest connector is there");
        send(&mut connected, 0, 10);
        expect(&mut accepted, 0, 10);
        assert!(listener.accept(begun).unwrap().is_none());
        let deadline = listener.deadline().unwrap();
        assert_eq!(deadline, begun + TIMEOUT);
        for _ in &silent {
            let error = listener.accept(deadline).err();
            assert_eq!(error, Some(AcceptError::Refused(HandshakeError::TimedOut)));
        }
        assert!(listener.accept(deadline).unwrap().is_none());
        assert_eq!(listener.deadline(), None);
    });
}

#[test]
fn half_open_connectors_are_bounded_oldest_first() {
    guarded("half_open_connectors_are_bounded_oldest_first", || {
        let place = place();
        let mut listener = listen(&place.path);
        let surplus = 5;
        let silent: Vec<_> = (0..HALF_OPEN_MAX + surplus)
            .map(|_| UnixStream::connect(&place.path).unwrap())
            .collect();
        let _connected = connect_shm(&place.path, options(), TIMEOUT).unwrap();
        // The honest one needs a place as well.
        for _ in 0..=surplus {
            assert_eq!(refusal(&mut listener), HandshakeError::Evicted);
        }
        assert!(listener.accept(Instant::now()).unwrap().is_some());
        drop(silent);
    });
}

fn is_readable(listener: &ShmListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn the_descriptor_tells_when_to_accept() {
    let place = place();
    let mut listener = listen(&place.path);
    assert!(!is_readable(&listener));
    let memory = good_memory();
    let stream = UnixStream::connect(&place.path).unwrap();
    assert!(is_readable(&listener));
    assert!(listener.accept(Instant::now()).unwrap().is_none());
    assert!(!is_readable(&listener), "a silent connector is nothing to do");
    drop(stream);
    assert!(is_readable(&listener));
    assert_eq!(refusal(&mut listener), HandshakeError::Closed);
    let _stream = greet(&place.path, &good_hello(), &[&memory]);
    let accepted = listener.accept(Instant::now()).unwrap();
    assert!(accepted.is_some());
    assert!(!is_readable(&listener), "an accepted link is not the listener's business");
}

#[test]
fn the_socket_file_is_private_and_goes_with_its_listener() {
    let place = place();
    let listener = listen(&place.path);
    assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = ShmListener::bind(&place.path, 0o600, options(), TIMEOUT);
    assert_eq!(second.err(), Some(ListenError::InUse));
    drop(listener);
    assert!(!place.path.exists());
}

#[test]
fn a_socket_left_by_the_dead_is_replaced_and_a_file_is_not() {
    let place = place();
    drop(UnixListener::bind(&place.path).unwrap());
    assert!(place.path.exists());
    let listener = listen(&place.path);
    drop(listener);
    fs::write(&place.path, "precious").unwrap();
    let error = ShmListener::bind(&place.path, 0o600, options(), TIMEOUT).err();
    assert_eq!(error, Some(ListenError::InUse));
    assert_eq!(fs::read(&place.path).unwrap(), b"precious");
}

#[test]
fn nobody_there_and_nobody_answering_are_told_apart() {
    let place = place();
    let error = connect_shm(&place.path, options(), TIMEOUT).err();
    assert!(matches!(error, Some(ConnectError::Os { call: "connect", .. })), "{error:?}");
    let long = PathBuf::from(format!("/{}", "x".repeat(200)));
    let error = connect_shm(&long, options(), TIMEOUT).err();
    assert_eq!(error, Some(ConnectError::PathTooLong));
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(&place.path).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _waiting = UnixStream::connect(&place.path).unwrap();
    let timeout = Duration::from_millis(20);
    let error = connect_shm(&place.path, options(), timeout).err();
    assert_eq!(error, Some(ConnectError::TimedOut { timeout }));
}

/// An accepted link, and what its connector can do behind its back.
fn victim_and_memory() -> (ShmLink, UnixStream, File) {
    let place = place();
    let mut listener = listen(&place.path);
    let memory = good_memory();
    let stream = greet(&place.path, &good_hello(), &[&memory]);
    (accept_one(&mut listener), stream, File::from(memory))
}

/// Where the acceptor's outgoing ring keeps what the peer has consumed: the second ring's control
/// words, three of which take two lines of 64 bytes each.
const RELEASED_AT: u64 = 3 * 128;

#[test]
fn an_impossible_consumed_index_is_refused() {
    let (header, payload) = frame(0, 1000);
    for claimed_bytes in [64, 1 << 40, u64::MAX, 1088 + 1, 1088 + 64] {
        let (mut link, _stream, memory) = victim_and_memory();
        memory.write_all_at(&u64::to_ne_bytes(claimed_bytes), RELEASED_AT).unwrap();
        let error = loop {
            match link.send(&header, &payload) {
                Ok(Sent::Taken) => {}
                Ok(Sent::Full) => break None,
                Err(error) => break Some(error),
            }
        };
        // A possible claim is accepted: a false one harms only the peer's own frames.
        let ring_bytes = options().ring_bytes() as u64;
        if claimed_bytes % 64 == 0 && claimed_bytes <= ring_bytes {
            assert_eq!(error, None);
        } else {
            let Some(SendError::BadPeerIndex { claimed_bytes: got, .. }) = error else {
                panic!("{claimed_bytes}: {error:?}")
            };
            assert_eq!(got, claimed_bytes);
        }
    }
    let (mut link, _stream, memory) = victim_and_memory();
    while link.send(&header, &payload).unwrap() == Sent::Taken {}
    memory.write_all_at(&u64::to_ne_bytes(1088), RELEASED_AT).unwrap();
    assert_eq!(link.send(&header, &payload), Ok(Sent::Taken), "one frame was released");
    memory.write_all_at(&u64::to_ne_bytes(0), RELEASED_AT).unwrap();
    let error = link.send(&header, &payload);
    assert!(matches!(error, Err(SendError::BadPeerIndex { claimed_bytes: 0, .. })), "{error:?}");
}

#[test]
fn memory_scribbled_over_at_random_is_survived() {
    guarded("memory_scribbled_over_at_random_is_survived", || {
        let mut random = Pcg64::seed_from_u64(11);
        let (header, payload) = frame(0, 1000);
        let page = rustix::param::page_size();
        for _ in 0..300 {
            let (mut link, stream, memory) = victim_and_memory();
            for _ in 0..200 {
                let mut junk = [0; 200];
                let length = random.random_range(1..=junk.len());
                random.fill_bytes(&mut junk[..length]);
                // Half of it over the control words and the first records, half anywhere.
                let end = if random.random() { page + 4096 } else { good_bytes() as usize - 200 };
                let at = random.random_range(0..end) as u64;
                memory.write_all_at(&junk[..length], at).unwrap();
                let whole = [&header[..], &payload[..]].concat();
                memory.write_all_at(&whole, page as u64).unwrap();
                if let Ok(Some(got)) = link.receive() {
                    assert_eq!(got.payload.len(), got.header.payload_bytes());
                }
                let _ = link.send(&header, &payload);
                let spin = Duration::ZERO;
                let _ = wait(slice::from_mut(&mut link), spin, Some(Duration::ZERO)).unwrap();
                let _ = link.arm();
                link.disarm();
            }
            drop(stream);
        }
    });
}

#[test]
fn a_flood_of_doorbells_is_only_noise() {
    guarded("a_flood_of_doorbells_is_only_noise", || {
        use std::io::Write;
        let (mut link, mut stream, _memory) = victim_and_memory();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[1; 4096]).is_ok() {}
        for _ in 0..1000 {
            link.disarm();
            assert!(link.receive().unwrap().is_none());
        }
    });
}

/// A peer may ring and die before this side polls. One event then reports both.
#[test]
fn the_end_right_behind_a_doorbell_is_seen() {
    guarded("the_end_right_behind_a_doorbell_is_seen", || {
        use std::io::Write;
        for doorbells in [1, 255, 256, 257, 4096, 10_000] {
            let (mut link, mut stream, _memory) = victim_and_memory();
            stream.write_all(&vec![1; doorbells]).unwrap();
            drop(stream);
            link.disarm();
            // As an edge-triggered event loop does: it sleeps if nothing is ready.
            while matches!(link.receive(), Ok(None)) {
                assert_eq!(link.arm(), Armed::Ready, "asleep for ever after {doorbells} doorbells");
                link.disarm();
            }
            assert!(matches!(link.receive(), Err(ReceiveError::Closed)));
        }
    });
}
