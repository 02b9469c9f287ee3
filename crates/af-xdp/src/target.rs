//! Where datagrams of IPv4 go to, as the program that steers knows it.

use std::net::SocketAddrV4;

use aya::Pod;

/// Where a datagram goes to, in the packet's order of bytes. As in the program.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Target {
    address: [u8; 4],
    port: [u8; 2],
    reserved: [u8; 2],
}

// SAFETY: bytes without padding, and any values are valid.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Pod for Target {}

impl From<SocketAddrV4> for Target {
    fn from(address: SocketAddrV4) -> Self {
        Self {
            address: address.ip().octets(),
            port: address.port().to_be_bytes(),
            reserved: [0; 2],
        }
    }
}
