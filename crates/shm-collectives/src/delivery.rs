//! Delivery of a segment's descriptor over a socket, where `/proc` gives no access to it.
//!
//! For hosts where `/proc` does not let a process open another one's descriptors: containers of one
//! host with namespaces of their own for users or pids, hardened kernels. A rank binds a datagram
//! socket to an abstract name (unix(7)) of 128 random bits and sends the name to the leader; the
//! leader sends the descriptor there (`SCM_RIGHTS`), which succeeds or fails at once; the rank then
//! finds it in its queue. Neither side waits for the other, and abstract names are no files: the
//! kernel forgets them with the process. Abstract names belong to a network namespace: delivery to
//! a process in another one fails with `ECONNREFUSED`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Messages that are searched for the descriptor: anyone may write to an abstract name.
const MESSAGES_MAX: usize = 64;

/// Where a rank can be handed a descriptor. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxName(pub [u8; Self::BYTES]);

impl MailboxName {
    /// Size of a name.
    pub const BYTES: usize = 16;

    fn address(self) -> Result<SocketAddrUnix, DeliveryError> {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        SocketAddrUnix::new_abstract_name(format!("tributary-{hex}").as_bytes())
            .map_err(|errno| DeliveryError { call: "sockaddr_un", errno })
    }
}

/// A socket on which a rank awaits its segment. The name goes when it is dropped.
#[derive(Debug)]
pub struct Mailbox {
    socket: OwnedFd,
    name: MailboxName,
}

/// Why a descriptor could not be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot hand the segment over a socket: {call}: {errno}")]
pub struct DeliveryError {
    /// The call that failed.
    pub call: &'static str,
    /// Why. `ECONNREFUSED`: nobody has the name here; the rank is in another network namespace.
    pub errno: Errno,
}

impl Mailbox {
    /// A mailbox under a fresh random name.
    ///
    /// # Errors
    /// The system refused a socket or random bits.
    pub fn new() -> Result<Self, DeliveryError> {
        let failed = |call| move |errno| DeliveryError { call, errno };
        let mut bytes = [0; MailboxName::BYTES];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(failed("getrandom"))?;
        let name = MailboxName(bytes);
        let socket = datagram_socket()?;
        rustix::net::bind(&socket, &name.address()?).map_err(failed("bind"))?;
        Ok(Self { socket, name })
    }

    /// The name to tell the leader.
    #[must_use]
    pub fn name(&self) -> MailboxName {
        self.name
    }

    /// The next descriptor that somebody left here, if any.
    pub(super) fn take(&self) -> Option<OwnedFd> {
        (0..MESSAGES_MAX).find_map(|_| self.receive().transpose()).and_then(Result::ok)
    }

    /// One message: the descriptor in it, or none; an error once there are no more.
    fn receive(&self) -> Result<Option<OwnedFd>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags)?;
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        Ok(descriptors.flatten().next())
    }
}

/// Leaves `descriptor` in the mailbox `name`.
pub(super) fn send(descriptor: &OwnedFd, name: MailboxName) -> Result<(), DeliveryError> {
    let failed = |call| move |errno| DeliveryError { call, errno };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let byte = [IoSlice::new(&[1])];
    rustix::net::sendmsg_addr(datagram_socket()?, &name.address()?, &byte, &mut control, flags)
        .map_err(failed("sendmsg"))?;
    Ok(())
}

fn datagram_socket() -> Result<OwnedFd, DeliveryError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        .map_err(|errno| DeliveryError { call: "socket", errno })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn what_is_left_in_a_mailbox_is_found_past_what_strangers_left() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.take().is_none());
        let stranger = datagram_socket().unwrap();
        let address = mailbox.name().address().unwrap();
        rustix::net::sendto(&stranger, b"no descriptor", SendFlags::empty(), &address).unwrap();
        send(&File::open("/proc/self/comm").unwrap().into(), mailbox.name()).unwrap();
        let mut text = String::new();
        File::from(mailbox.take().unwrap()).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
        assert!(mailbox.take().is_none());
    }

    #[test]
    fn a_mailbox_that_is_gone_refuses_at_once() {
        let name = Mailbox::new().unwrap().name();
        let file = File::open("/proc/self/comm").unwrap().into();
        let refused = DeliveryError { call: "sendmsg", errno: Errno::CONNREFUSED };
        assert_eq!(send(&file, name), Err(refused));
    }
}
