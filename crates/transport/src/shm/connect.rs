//! The connecting side: makes the memory and passes it to the listener.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, connect,
    sendmsg,
};
use tributary_inheritance::Uninherited;

use super::ShmOptions;
use super::hello::{HELLO_BYTES, Hello, SEALS};
use super::link::{End, ShmLink};
use super::memory::{Mapping, file_bytes};
use crate::ConnectError;
use crate::socket::stream;

/// Pause between two attempts while the listener's queue is full.
const RETRY: Duration = Duration::from_millis(1);

/// Connects to the [`ShmListener`](super::ShmListener) at `path`.
///
/// Waits at most `timeout` for a place in the listener's queue, and never for the listener itself:
/// the link is usable at once, and a listener that refuses it closes it.
///
/// # Errors
/// If nobody listens at `path`, its queue stays full, or the memory can't be had.
pub fn connect_shm(
    path: &Path,
    options: ShmOptions,
    timeout: Duration,
) -> Result<ShmLink, ConnectError> {
    let address = SocketAddrUnix::new(path).map_err(|_| ConnectError::PathTooLong)?;
    let socket = stream(AddressFamily::UNIX).map_err(os("socket"))?;
    enter_queue(&socket, &address, timeout)?;
    let memory = sealed_memory(options.ring_bytes())?;
    let mapping = Mapping::new(memory.as_fd(), options.ring_bytes()).map_err(os("mmap"))?;
    pass(&socket, &memory, options)?;
    let socket = Uninherited::new(socket);
    Ok(ShmLink::new(&Arc::new(mapping), socket, End::Connector, options.payload_max_bytes()))
}

fn os(call: &'static str) -> impl Fn(Errno) -> ConnectError {
    move |error| ConnectError::Os { call, error: error.into() }
}

fn enter_queue(
    socket: &OwnedFd,
    address: &SocketAddrUnix,
    timeout: Duration,
) -> Result<(), ConnectError> {
    let deadline = Instant::now() + timeout;
    loop {
        match connect(socket, address) {
            Ok(()) => return Ok(()),
            // The listener's queue is full; `poll` cannot wait for room in it.
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => thread::sleep(RETRY),
            Err(Errno::AGAIN | Errno::INTR) => return Err(ConnectError::TimedOut { timeout }),
            Err(error) => return Err(os("connect")(error)),
        }
    }
}

/// Zeroed memory for two rings that nobody can resize, so that no access to it can fault.
fn sealed_memory(ring_bytes: usize) -> Result<OwnedFd, ConnectError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("tributary-link", flags).map_err(os("memfd_create"))?;
    ftruncate(&memory, file_bytes(ring_bytes)).map_err(os("ftruncate"))?;
    fcntl_add_seals(&memory, SEALS).map_err(os("fcntl"))?;
    Ok(memory)
}

fn pass(socket: &OwnedFd, memory: &OwnedFd, options: ShmOptions) -> Result<(), ConnectError> {
    let hello = Hello {
        payload_max_bytes: options.payload_max_bytes(),
        ring_bytes: options.ring_bytes() as u64,
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "made for one descriptor");
    let bytes = hello.encode();
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
        .map_err(os("sendmsg"))?;
    // These are the first bytes on a new socket, whose buffer holds thousands.
    assert_eq!(sent, HELLO_BYTES, "a greeting is sent whole");
    Ok(())
}
