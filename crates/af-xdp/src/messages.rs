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

use crate::admission::Admission;
use crate::destination::{Destination, map_into_ipv6};

/// Changes whenever a message or the layout of rings does: a process and a service may be of different releases.
const VERSION: u8 = 2;

const REQUEST_BYTES: usize = 32;

/// Descriptors beside one message.
const DESCRIPTORS_MAX: usize = 2;

/// Longest message. A longer reason for a refusal is cut.
const MESSAGE_BYTES_MAX: usize = 512;

/// What a process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Rings at the interface that has this address. Their memory comes with the answer.
    Open {
        /// The address.
        at: IpAddr,
    },
    /// What goes to the address that the socket beside this is bound to, into these rings.
    Enter {
        /// What a datagram has to show.
        admission: Admission,
        /// A bit for each ring.
        rings: u32,
    },
    /// What goes to this address, which was entered, into these rings alone; to the network stack if there are none.
    Keep {
        /// The address.
        target: Destination,
        /// A bit for each ring.
        rings: u32,
    },
    /// Sockets of AF_XDP, one for each queue of the interface that has this address. Their number comes with the answer, and each
    /// socket with its memory in an answer of its own behind that.
    OpenSockets {
        /// The address.
        at: IpAddr,
    },
    /// What goes to the address that the socket beside this is bound to, to the sockets of AF_XDP.
    Steer,
    /// What goes to this address, which is steered, to the network stack again.
    Leave {
        /// The address.
        target: Destination,
    },
}

/// Why a message can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The other end is of another release.
    #[error("the service and the job are of releases that do not fit each other")]
    Version,
    /// It is no message.
    #[error("the message is damaged")]
    Damaged,
}

const OPEN: u8 = 1;
const ENTER: u8 = 2;
const KEEP: u8 = 3;
const OPEN_SOCKETS: u8 = 4;
const STEER: u8 = 5;
const LEAVE: u8 = 6;

impl Request {
    /// Version and kind, the port or the word's offset (2 bytes each), rings (4), address (16, of IPv4 mapped into IPv6), word (8). Numbers are
    /// little-endian.
    #[must_use]
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
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
            Self::OpenSockets { at } => (OPEN_SOCKETS, 0, 0, Some(at), [0; 8]),
            Self::Steer => (STEER, 0, 0, None, [0; 8]),
            Self::Leave { target } => {
                let target = SocketAddr::from(target);
                (LEAVE, target.port(), 0, Some(target.ip()), [0; 8])
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

    /// # Errors
    /// If it is none.
    pub fn decode(message: &[u8]) -> Result<Self, Unreadable> {
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
            OPEN_SOCKETS => Ok(Self::OpenSockets { at: address }),
            STEER => Ok(Self::Steer),
            LEAVE => Ok(Self::Leave { target: SocketAddr::new(address, short).into() }),
            _ => Err(Unreadable::Damaged),
        }
    }
}

/// What a service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done. So many answers with sockets follow.
    Done {
        /// The number of them.
        sockets: u8,
    },
    /// It was not done.
    Refused {
        /// Why, for people.
        reason: String,
    },
}

impl Reply {
    /// It was done, and nothing follows.
    pub const DONE: Self = Self::Done { sockets: 0 };

    /// Version, whether it was done, and the number of sockets or the reason.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Self::Done { sockets } => bytes.extend([1, *sockets]),
            Self::Refused { reason } => {
                bytes.push(0);
                bytes.extend_from_slice(reason.as_bytes());
                bytes.truncate(MESSAGE_BYTES_MAX);
            }
        }
        bytes
    }

    /// # Errors
    /// If it is none.
    pub fn decode(message: &[u8]) -> Result<Self, Unreadable> {
        match message {
            [VERSION, 1, sockets] => Ok(Self::Done { sockets: *sockets }),
            [VERSION, 0, reason @ ..] => {
                Ok(Self::Refused { reason: String::from_utf8_lossy(reason).into_owned() })
            }
            [VERSION, ..] => Err(Unreadable::Damaged),
            _ => Err(Unreadable::Version),
        }
    }
}

/// Sends a message, with descriptors if there are any, two at most.
///
/// # Errors
/// If the connection has ended.
pub fn send(
    connection: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_room = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(has_room, "there is space for two");
    }
    sendmsg(connection, &[IoSlice::new(message)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes a message, and the descriptors beside it. None if the connection was closed.
///
/// # Errors
/// If nothing came in time.
pub fn receive(connection: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(connection, into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    bytes.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((bytes, descriptors)))
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
            Request::OpenSockets { at: address },
            Request::Steer,
            Request::Leave { target },
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
        for reply in
            [Reply::DONE, Reply::Done { sockets: 64 }, Reply::Refused { reason: "no".into() }]
        {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
        let long = Reply::Refused { reason: "a".repeat(1000) }.encode();
        assert!(
            matches!(Reply::decode(&long), Ok(Reply::Refused { reason }) if reason.len() < 1000)
        );
        assert_eq!(Reply::decode(&[VERSION, 1, 1, 1]), Err(Unreadable::Damaged));
        assert_eq!(Reply::decode(&[VERSION + 1, 1, 0]), Err(Unreadable::Version));
    }
}
