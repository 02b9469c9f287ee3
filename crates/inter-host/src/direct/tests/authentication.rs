//! Goal: nobody on the way can put another result into a host's hands. Method: a relay carries the
//! frames of hosts 0 and 1 and tampers with one; without codes the wrong result arrives, which shows
//! that the tampering works.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use tributary_wire::frame::{CODE_BYTES, HEADER_BYTES, announces_code};

use super::*;

/// Elements of a vector. A ring of three sends a third of it in each frame.
const ELEMENTS: usize = 6;

/// What the relay does to frame `number` of one direction, of which the first has number 0.
type Tamper = Box<dyn FnMut(usize, &mut Vec<u8>) + Send>;

/// The two ways of a relay.
struct Relay {
    /// From the caller, host 0.
    there: Tamper,
    back: Tamper,
}

impl Relay {
    fn faithful() -> Self {
        Self { there: Box::new(|_, _| {}), back: Box::new(|_, _| {}) }
    }

    fn new(is_there: bool, tamper: impl FnMut(usize, &mut Vec<u8>) + Send + 'static) -> Self {
        let tamper: Tamper = Box::new(tamper);
        if is_there {
            Self { there: tamper, ..Self::faithful() }
        } else {
            Self { back: tamper, ..Self::faithful() }
        }
    }

    /// Carries the first connection through its hands and every later one as it is; gives the address.
    fn start(self, target: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut relay = Some(self);
            while let Ok((caller, _)) = listener.accept() {
                let Ok(called) = TcpStream::connect(target) else { continue };
                let Self { there, back } = relay.take().unwrap_or_else(Self::faithful);
                let ends = [caller.try_clone().unwrap(), called.try_clone().unwrap()];
                std::thread::spawn(move || carry(caller, called, there));
                let [caller, called] = ends;
                std::thread::spawn(move || carry(called, caller, back));
            }
        });
        address
    }
}

/// Carries frames one way until one end is gone.
fn carry(mut from: TcpStream, mut to: TcpStream, mut tamper: Tamper) {
    to.set_nodelay(true).unwrap();
    for number in 0.. {
        let Ok(mut frame) = read_frame(&mut from) else { break };
        tamper(number, &mut frame);
        if to.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn read_frame(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let payload_bytes = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
    let code_bytes = if announces_code(&header) { CODE_BYTES } else { 0 };
    let mut frame = header.to_vec();
    frame.resize(HEADER_BYTES + payload_bytes + code_bytes, 0);
    from.read_exact(&mut frame[HEADER_BYTES..])?;
    Ok(frame)
}

/// Hosts among which 0 and 1 are joined through a relay.
fn relayed(count: u32, named: AlgorithmChoice, identity: Identity, relay: Relay) -> Vec<Host> {
    let local = own_address();
    let listeners: Vec<_> = (0..count).map(|_| Listener::bind(local, None).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let mut through_relay = addresses.clone();
    through_relay[1] = relay.start(addresses[1]);
    let host = |(host, (listener, _))| {
        let addresses = if host == 0 { through_relay.clone() } else { addresses.clone() };
        let links = DirectLinks::new(host, identity, listener, addresses);
        Host { links, named, hosts: count }
    };
    (0..count).zip(listeners).map(host).collect()
}

/// What a host saw: whether every result that it was given is right, and why there were no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    is_right: bool,
    failure: Option<Abort>,
}

/// Every host reduces a few times, until it fails.
fn outcomes(hosts: Vec<Host>) -> Vec<Seen> {
    on_all(hosts, |host, mut links| {
        let mut is_right = true;
        for round in 0..3 {
            let own = |host: u32| (host + 1 + round) as f32;
            let mut vector = [own(host); ELEMENTS];
            if let Err(abort) = allreduce(&mut links, &mut vector) {
                return Seen { is_right, failure: Some(abort) };
            }
            let sum: f32 = (0..links.hosts).map(own).sum();
            is_right &= vector == [sum; ELEMENTS];
        }
        links.leave();
        Seen { is_right, failure: None }
    })
}

fn not_authentic(host: u32) -> Abort {
    Abort { reason: AbortReason::NotAuthentic, at_fault: EndpointId(host) }
}

/// A relay that flips a bit of one byte of a frame.
fn flipping(is_there: bool, frame: usize, byte: usize) -> Relay {
    Relay::new(is_there, move |number, bytes| {
        if number == frame {
            bytes[byte] ^= 0x40;
        }
    })
}

const FRAME_BYTES: usize = HEADER_BYTES + 4 * ELEMENTS + CODE_BYTES;

/// Every byte of host 0's first message, behind its `Join`, and of host 1's.
#[test]
fn an_altered_byte_ends_the_operation_at_both_hosts() {
    let [_, identity] = identities();
    for (is_there, frame) in [(true, 1), (false, 0)] {
        for byte in 0..FRAME_BYTES {
            let relay = flipping(is_there, frame, byte);
            let hosts = relayed(2, AlgorithmChoice::RecursiveDoubling, identity, relay);
            let failure = Some(not_authentic(if is_there { 0 } else { 1 }));
            let expected = Seen { is_right: true, failure };
            assert_eq!(outcomes(hosts), [expected; 2], "byte {byte}, there: {is_there}");
        }
    }
}

#[test]
fn without_codes_an_altered_payload_is_taken() {
    let [identity, _] = identities();
    for (is_there, frame) in [(true, 1), (false, 0)] {
        let relay = flipping(is_there, frame, HEADER_BYTES + 2);
        let hosts = relayed(2, AlgorithmChoice::RecursiveDoubling, identity, relay);
        let seen = |is_right| Seen { is_right, failure: None };
        assert_eq!(outcomes(hosts), [seen(is_there), seen(!is_there)]);
    }
}

/// Host 1 turns an altered `Join` away, and waits on; host 0 calls again to say why it won't come.
#[test]
fn an_altered_join_leaves_nobody_waiting() {
    let [_, identity] = identities();
    for byte in [6, 12, 44, 50, HEADER_BYTES, HEADER_BYTES + CODE_BYTES - 1] {
        let relay = flipping(true, 0, byte);
        let hosts = relayed(2, AlgorithmChoice::RecursiveDoubling, identity, relay);
        let lost = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(1) };
        let expected = Seen { is_right: true, failure: Some(lost) };
        assert_eq!(outcomes(hosts), [expected; 2], "byte {byte}");
    }
}

/// In a ring, host 0 sends host 1 a part of a sum and later the whole of it, under equal headers. The
/// relay puts the one in the other's place, with the code that host 0 made for it.
#[test]
fn an_earlier_frame_does_not_pass_for_a_later_one() {
    let repeating = || {
        let mut earlier: Vec<Vec<u8>> = Vec::new();
        Relay::new(true, move |_, frame| {
            let has_equal_header = |other: &&Vec<u8>| {
                frame[6] & 1 == 1 && other[..HEADER_BYTES] == frame[..HEADER_BYTES]
            };
            match earlier.iter().find(has_equal_header) {
                Some(other) => frame.clone_from(other),
                None => earlier.push(frame.clone()),
            }
        })
    };
    let [without, with] = identities()
        .map(|identity| outcomes(relayed(3, AlgorithmChoice::Ring, identity, repeating())));
    assert!(without.iter().any(|seen| !seen.is_right), "{without:?}");
    assert_eq!(with, [Seen { is_right: true, failure: Some(not_authentic(0)) }; 3]);
}
