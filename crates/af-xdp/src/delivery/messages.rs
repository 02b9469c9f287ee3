//! What a process asks the host's service, and what it answers: a message each, with a file descriptor where one says more than
//! words. The first answer is to the connection itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::admission::Admission;
use super::destination::{Destination, map_into_ipv6};

/// Changes whenever a message or the layout of rings does: a process and a service may be of different releases.
const VERSION: u8 = 1;

const REQUEST_BYTES: usize = 32;

/// Longest message. A longer reason for a refusal is cut.
const MESSAGE_BYTES_MAX: usize = 512;

/// What a process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Rings at the interface that has this address. Their memory comes with the answer.
    Open { at: IpAddr },
    /// What goes to the address that the socket beside this is bound to, into these rings: a bit for each.
    Enter { admission: Admission, rings: u32 },
    /// What goes to this address, which was entered, into these rings alone; to the network stack if there are none.
    Keep { target: Destination, rings: u32 },
}

/// Why a message can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the service and the job are of releases that do not fit each other")]
    Version,
    #[error("the message is damaged")]
    Damaged,
}

const OPEN: u8 = 1;
const ENTER: u8 = 2;
const KEEP: u8 = 3;

impl Request {
    /// Version and kind, the port or the word's offset (2 bytes each), rings (4), address (16, of IPv4 mapped into IPv6), word (8). Numbers are
    /// little-endian.
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        let (kind, short, rings, address, word) = match self {
            Self::Open { at } => (OPEN, 0, 0, Some(at), [0; 8]),
            Self::Enter { admission, rings } => {
                let Admission { offset_bytes, word } = admission;
                (ENTER, offset_bytes, rings, None, word)
            }
            Self::Keep { target, rings } => {
                let target = SocketAddr::from(target);
                (KEEP, target.port(), rings, Some(target.ip()), [0; 8])
            }
        };
        let address = address.map_or(Ipv6Addr::UNSPECIFIED, map_into_ipv6);
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0] = VERSION;
        bytes[1] = kind;
        bytes[2..4].copy_from_slice(&short.to_le_bytes());
        bytes[4..8].copy_from_slice(&rings.to_le_bytes());
        bytes[8..24].copy_from_slice(&address.octets());
        bytes[24..32].copy_from_slice(&word);
        bytes
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, Unreadable> {
        if message.first() != Some(&VERSION) {
            return Err(Unreadable::Version);
        }
        let bytes: &[u8; REQUEST_BYTES] = message.try_into().map_err(|_| Unreadable::Damaged)?;
        let [_, kind, s0, s1, r0, r1, r2, r3, behind @ ..] = *bytes;
        let short = u16::from_le_bytes([s0, s1]);
        let rings = u32::from_le_bytes([r0, r1, r2, r3]);
        let (address, word) = behind.split_first_chunk::<16>().expect("24 bytes are left");
        let word = word.try_into().expect("8 bytes are left");
        let address = Ipv6Addr::from_octets(*address).to_canonical();
        match kind {
            OPEN => Ok(Self::Open { at: address }),
            ENTER => Ok(Self::Enter { admission: Admission { offset_bytes: short, word }, rings }),
            KEEP => Ok(Self::Keep { target: SocketAddr::new(address, short).into(), rings }),
            _ => Err(Unreadable::Damaged),
        }
    }
}

/// Version, whether it was done, and the reason if it was not.
pub(super) fn encode_reply(outcome: Result<(), &str>) -> Vec<u8> {
    let mut bytes = vec![VERSION, u8::from(outcome.is_ok())];
    bytes.extend_from_slice(outcome.err().unwrap_or_default().as_bytes());
    bytes.truncate(MESSAGE_BYTES_MAX);
    bytes
}

/// The reason, if what was asked for was refused.
pub(super) fn decode_reply(message: &[u8]) -> Result<Result<(), String>, Unreadable> {
    match message {
        [VERSION, 1] => Ok(Ok(())),
        [VERSION, 0, reason @ ..] => Ok(Err(String::from_utf8_lossy(reason).into_owned())),
        [VERSION, ..] => Err(Unreadable::Damaged),
        _ => Err(Unreadable::Version),
    }
}

/// Sends a message, with a descriptor if there is one.
pub(super) fn send(
    connection: impl AsFd,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|it| [it]);
    if let Some(descriptors) = &descriptors {
        let has_room = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(has_room, "there is space for one");
    }
    sendmsg(connection, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes a message, and the descriptor beside it. None if the connection was closed.
pub(super) fn receive(connection: impl AsFd) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(connection, into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((bytes, descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_as_they_were_sent() {
        let address: IpAddr = "10.93.0.1".parse().expect("an address");
        let other: IpAddr = "fd93::1".parse().expect("an address");
        let admission = Admission { offset_bytes: 16, word: *b"a secret" };
        let target = SocketAddr::new(other, 9301).into();
        for request in [
            Request::Open { at: address },
            Request::Open { at: other },
            Request::Enter { admission, rings: 0x8000_0001 },
            Request::Keep { target, rings: 2 },
        ] {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            assert_eq!(Request::decode(&bytes[..20]), Err(Unreadable::Damaged));
            let mut other = bytes;
            other[0] += 1;
            assert_eq!(Request::decode(&other), Err(Unreadable::Version));
            other = bytes;
            other[1] = 77;
            assert_eq!(Request::decode(&other), Err(Unreadable::Damaged));
        }
        assert_eq!(Request::decode(&[]), Err(Unreadable::Version));
    }

    #[test]
    fn replies_tell_why_not() {
        assert_eq!(decode_reply(&encode_reply(Ok(()))), Ok(Ok(())));
        let no = decode_reply(&encode_reply(Err("no room")));
        assert_eq!(no, Ok(Err("no room".to_owned())));
        let long = decode_reply(&encode_reply(Err(&"a".repeat(1000))));
        assert!(long.is_ok_and(|it| it.is_err_and(|reason| reason.len() < 1000)));
        assert_eq!(decode_reply(&[VERSION, 1, 1]), Err(Unreadable::Damaged));
        assert_eq!(decode_reply(&[VERSION + 1, 1]), Err(Unreadable::Version));
    }
}
