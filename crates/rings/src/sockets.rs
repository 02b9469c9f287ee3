//! Sockets of AF_XDP, one for each queue of an interface, for a job that gets them with their memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg,
};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tributary_af_xdp::{BUFFER_BYTES, QueueSize, SENT_MAX};

/// A socket, and the memory of its packets. The kernel keeps the memory for as long as somebody has the socket.
pub(crate) struct OpenedSocket {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: OwnedFd,
}

/// Opens the socket of the queue `number`, of `count`, of an interface. Packets are copied unless the driver may do without.
pub(crate) fn open(
    interface: u32,
    number: u32,
    count: u32,
    copies: bool,
) -> io::Result<OpenedSocket> {
    let size = QueueSize::of(number, count);
    let memory = memfd_create("tributary-af-xdp", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, size.memory_bytes() as u64)?;
    // Until the kernel has it.
    let mapped: MmapRaw =
        MmapOptions::new().len(size.memory_bytes()).map_raw(memory.as_fd().as_raw_fd())?;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let registered = XdpUmemReg {
        addr: mapped.as_ptr() as u64,
        len: size.memory_bytes() as u64,
        chunk_size: BUFFER_BYTES,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    set_xdp_umem_reg(&socket, registered)?;
    set_xdp_umem_fill_ring_size(&socket, size.received)?;
    set_xdp_umem_completion_ring_size(&socket, SENT_MAX)?;
    set_xdp_rx_ring_size(&socket, size.received)?;
    if size.sends() {
        set_xdp_tx_ring_size(&socket, SENT_MAX)?;
    }
    let flags = if copies { SocketAddrXdpFlags::XDP_COPY } else { SocketAddrXdpFlags::empty() };
    bind(&socket, &SocketAddrXdp::new(flags, interface, number))?;
    Ok(OpenedSocket { socket, memory })
}
