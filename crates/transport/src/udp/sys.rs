//! `sendmmsg`, `recvmmsg`, and the socket options for trains of datagrams, filters and counts of what was dropped.
//!
//! The `sendmmsg` of rustix 1.1 has no UDP control messages, so it can't tell the kernel how to cut
//! a train. It has neither `recvmmsg` nor these options. Its address types are used here.

use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::net::addr::{SocketAddrLen, SocketAddrStorage};

use crate::option::{self, last_error};

/// Messages in one system call.
pub(super) const BATCH: usize = 32;

/// Messages asked for in one call when one is expected: getting only one shows that it was the
/// last.
pub(super) const FEW: usize = 2;

/// `linux/udp.h`; not in every version of `libc` for every target.
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// Room for one control message that holds an `int`, with its alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 32]);

/// A message to send.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) bytes: &'a [u8],
    /// None for the address that the socket is connected to.
    pub(super) target: Option<SocketAddr>,
    /// Length of each datagram but the last, if there are several.
    pub(super) segment_bytes: Option<u16>,
}

/// A message received.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    pub(super) len_bytes: usize,
    pub(super) source: SocketAddr,
    /// Length of each datagram of a train; of the message if it is none.
    pub(super) segment_bytes: usize,
}

/// Sends up to [`BATCH`] messages without waiting. Returns how many the kernel took.
pub(super) fn send(socket: BorrowedFd<'_>, messages: &[Outgoing<'_>]) -> Result<usize, Errno> {
    match messages.len() {
        0 | 1 => send_up_to::<1>(socket, messages),
        _ => send_up_to::<BATCH>(socket, messages),
    }
}

/// [`send`], with room for `ROOM` messages: clearing it costs as much as a short call.
fn send_up_to<const ROOM: usize>(
    socket: BorrowedFd<'_>,
    messages: &[Outgoing<'_>],
) -> Result<usize, Errno> {
    let count = messages.len().min(ROOM);
    // SAFETY: all-zero bytes are valid values of these plain structures of integers and pointers.
    let mut headers: [libc::mmsghdr; ROOM] = unsafe { mem::zeroed() };
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; ROOM];
    let mut names = [const { MaybeUninit::<SocketAddrAny>::uninit() }; ROOM];
    let mut controls = [Control([0; 32]); ROOM];
    for (index, message) in messages[..count].iter().enumerate() {
        vectors[index].iov_base = message.bytes.as_ptr().cast_mut().cast();
        vectors[index].iov_len = message.bytes.len();
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
        if let Some(target) = message.target {
            let name = names[index].write(target.into());
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_namelen = name.addr_len();
        }
        if let Some(segment_bytes) = message.segment_bytes {
            put_segment_bytes(header, &mut controls[index], segment_bytes);
        }
    }
    // SAFETY: the first `count` headers point to vectors, names and controls that outlive the call,
    // with their lengths; the kernel only reads through them.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| last_error())
}

/// Receives up to [`BATCH`] messages without waiting, one into each of `buffers`. Returns how many
/// came.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    incoming: &mut [Incoming],
) -> Result<usize, Errno> {
    match buffers.len() {
        0..=FEW => receive_up_to::<FEW>(socket, buffers, incoming),
        _ => receive_up_to::<BATCH>(socket, buffers, incoming),
    }
}

/// [`receive`], with room for `ROOM` messages: clearing it costs as much as a short call.
fn receive_up_to<const ROOM: usize>(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    incoming: &mut [Incoming],
) -> Result<usize, Errno> {
    let count = buffers.len().min(incoming.len()).min(ROOM);
    // SAFETY: as in `send`.
    let mut headers: [libc::mmsghdr; ROOM] = unsafe { mem::zeroed() };
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; ROOM];
    let mut names = [MaybeUninit::<SocketAddrStorage>::uninit(); ROOM];
    let mut controls = [Control([0; 32]); ROOM];
    for index in 0..count {
        vectors[index].iov_base = buffers[index].as_mut_ptr().cast();
        vectors[index].iov_len = buffers[index].len();
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
        header.msg_name = names[index].as_mut_ptr().cast();
        header.msg_namelen = size_of::<SocketAddrStorage>() as SocketAddrLen;
        header.msg_control = controls[index].0.as_mut_ptr().cast();
        header.msg_controllen = controls[index].0.len();
    }
    // SAFETY: the first `count` headers point to distinct buffers, names and controls that outlive
    // the call, with their lengths.
    let got = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let got = usize::try_from(got).map_err(|_| last_error())?;
    for index in 0..got {
        let len_bytes = headers[index].msg_len as usize;
        let name_bytes = headers[index].msg_hdr.msg_namelen;
        // No peer has the unspecified address, so a message without a source is nobody's.
        let source = address(names[index], name_bytes)
            .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let segment_bytes = segment_bytes(&headers[index].msg_hdr).unwrap_or(len_bytes);
        incoming[index] = Incoming { len_bytes, source, segment_bytes };
    }
    Ok(got)
}

/// Lets the kernel deliver several datagrams as one train. False if it can't.
pub(super) fn enable_receive_trains(socket: BorrowedFd<'_>) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int.
    unsafe { option::set(socket, libc::SOL_UDP, UDP_GRO, &on) }.is_ok()
}

/// An instruction of a socket's filter (`linux/filter.h`).
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct FilterStep(libc::sock_filter);

impl FilterStep {
    /// The accumulator becomes the length of what the filter sees.
    pub(super) fn load_length() -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, (0, 0))
    }

    /// The accumulator becomes the four bytes at `offset`, in network order.
    pub(super) fn load_word(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, (0, 0))
    }

    /// Skips `steps` if the accumulator is at least `value`.
    pub(super) fn if_at_least(value: u32, steps: u8) -> Self {
        Self::compare(libc::BPF_JGE, value, (steps, 0))
    }

    /// Skips `steps` if the accumulator is less than `value`.
    pub(super) fn if_below(value: u32, steps: u8) -> Self {
        Self::compare(libc::BPF_JGE, value, (0, steps))
    }

    /// Skips `steps` if the accumulator is `value`.
    pub(super) fn if_equal(value: u32, steps: u8) -> Self {
        Self::compare(libc::BPF_JEQ, value, (steps, 0))
    }

    /// Skips `steps`.
    pub(super) fn jump(steps: u32) -> Self {
        Self::new(libc::BPF_JMP | libc::BPF_JA, steps, (0, 0))
    }

    /// Ends with how many bytes to keep.
    pub(super) fn end(kept: u32) -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, kept, (0, 0))
    }

    fn compare(comparison: u32, value: u32, skips: (u8, u8)) -> Self {
        Self::new(libc::BPF_JMP | comparison | libc::BPF_K, value, skips)
    }

    fn new(code: u32, value: u32, (if_true, if_false): (u8, u8)) -> Self {
        Self(libc::sock_filter { code: code as u16, jt: if_true, jf: if_false, k: value })
    }
}

/// Lets `steps` decide what is queued at the socket. The kernel refuses steps that do not end, or leave themselves.
pub(super) fn attach_filter(socket: BorrowedFd<'_>, steps: &[FilterStep]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: steps.len() as libc::c_ushort,
        filter: steps.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the option's value is a program; it points to `steps`, with their number.
    unsafe { option::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Queues everything again. Without a filter there is nothing to do.
pub(super) fn detach_filter(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let ignored: libc::c_int = 0;
    // SAFETY: the kernel wants room for a number, and does not use it.
    let outcome =
        unsafe { option::set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &ignored) };
    match outcome {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// How many datagrams the kernel has dropped at the socket since it was made, modulo 2^32.
pub(super) fn read_drops(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    // `linux/sock_diag.h`: nine numbers, the last of which is SK_MEMINFO_DROPS.
    // SAFETY: any bytes are valid numbers.
    let numbers: [u32; 9] = unsafe { option::get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)? };
    Ok(numbers[8])
}

fn put_segment_bytes(header: &mut libc::msghdr, control: &mut Control, segment_bytes: u16) {
    // SAFETY: these macros only compute a length from a length.
    let (space, length) = unsafe { (libc::CMSG_SPACE(2) as usize, libc::CMSG_LEN(2) as usize) };
    assert!(space <= control.0.len(), "a control buffer holds one control message");
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = space;
    // SAFETY: the buffer is aligned for a control header, and long enough for it and two bytes,
    // asserted above; so its first header lies in it.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_UDP;
        (*first).cmsg_type = UDP_SEGMENT;
        (*first).cmsg_len = length as _;
        libc::CMSG_DATA(first).cast::<u16>().write_unaligned(segment_bytes);
    }
}

fn segment_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the control buffer that the header points to, which is still
    // alive, and set its length; the macros stay within that.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_UDP && (*message).cmsg_type == UDP_GRO {
                let bytes = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
                return usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// The address in `storage`, of which the kernel has written `name_bytes`.
fn address(
    storage: MaybeUninit<SocketAddrStorage>,
    name_bytes: SocketAddrLen,
) -> Option<SocketAddr> {
    let name_bytes_max = size_of::<SocketAddrStorage>() as SocketAddrLen;
    if !(size_of::<libc::sa_family_t>() as SocketAddrLen..=name_bytes_max).contains(&name_bytes) {
        return None;
    }
    // SAFETY: the kernel has written `name_bytes` of an address. They include the family and fit
    // the storage, as checked above.
    let name = unsafe { SocketAddrAny::new(storage, name_bytes) };
    name.try_into().ok()
}
