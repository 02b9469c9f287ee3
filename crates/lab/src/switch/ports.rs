//! The switch's ports: a TAP device in each member's network, whose other end is a descriptor here.
//!
//! The device passes on what the sending network left to do for checksum and segmentation (virtio-net header), so a
//! frame of 64 KiB crosses as one, as between two ends of a veth pair. A frame that is written goes up the member's
//! network at once, by this process: no backlog of the kernel lies in between.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;

use crate::namespaces::{StepError, step};
use crate::plan::MEMBER_INTERFACE;

/// Frames from a member that wait to be read.
pub(crate) const UNREAD_MAX: u32 = 8_192;

/// Segments of TCP and of UDP, over both versions of IP, and checksums. Kernels before 6.2 know none of UDP.
const SEGMENTS_AND_CHECKSUMS: [libc::c_uint; 2] = [
    libc::TUN_F_CSUM
        | libc::TUN_F_TSO4
        | libc::TUN_F_TSO6
        | libc::TUN_F_TSO_ECN
        | libc::TUN_F_USO4
        | libc::TUN_F_USO6,
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
];

/// One port.
pub(super) struct Port {
    device: OwnedFd,
    /// The member's counts of its interfaces.
    counts: File,
}

/// Makes the port of each member whose process number is given. Afterwards this process is in its own network again.
pub(super) fn make(processes: &[i32]) -> Result<Vec<Port>, StepError> {
    let own = network_of("self")?;
    let ports = processes
        .iter()
        .map(|process| {
            enter(&network_of(&process.to_string())?)?;
            Port::make()
        })
        .collect();
    enter(&own)?;
    ports
}

fn network_of(process: &str) -> Result<OwnedFd, StepError> {
    let path = format!("/proc/{process}/ns/net");
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(step("a member's network"))
}

fn enter(network: &OwnedFd) -> Result<(), StepError> {
    rustix::thread::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(step("into a member's network"))
}

impl Port {
    /// Makes the device in this process's network.
    fn make() -> Result<Self, StepError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(step("/dev/net/tun, by which a lab with delay carries frames"))?;
        attach(&device).map_err(step("a TAP device"))?;
        pass_on_offloads(&device).map_err(step("a TAP device's offloads"))?;
        // Of this thread's network, whichever that is later: `/proc/net` is a link to that of the process.
        let counts = File::open("/proc/thread-self/net/dev").map_err(step("/proc/net/dev"))?;
        Ok(Self { device, counts })
    }

    /// Reads one frame; `None` if there is none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.device, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands one frame to the member.
    pub(super) fn write(&self, frame: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.device, frame).map(|_| ()).map_err(io::Error::from)
    }

    /// Frames from the member that were dropped because too many waited to be read.
    pub(super) fn unread(&self) -> u64 {
        let mut text = vec![0; 4_096];
        let length = self.counts.read_at(&mut text, 0).unwrap_or(0);
        dropped_of(&String::from_utf8_lossy(&text[..length])).unwrap_or(0)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn attach(device: &OwnedFd) -> io::Result<()> {
    let name = CString::new(MEMBER_INTERFACE).expect("a name without zero");
    // SAFETY: zero is a valid value of every field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, source) in request.ifr_name.iter_mut().zip(name.as_bytes_with_nul()) {
        *target = *source as libc::c_char;
    }
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: this call reads and writes an `ifreq`, which `request` is.
    match unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn pass_on_offloads(device: &OwnedFd) -> io::Result<()> {
    let set = |offloads: libc::c_uint| {
        // SAFETY: this call takes a number and accesses no memory of this process.
        let result = unsafe {
            libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
        };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let [all, without_udp] = SEGMENTS_AND_CHECKSUMS;
    set(all).or_else(|_| set(without_udp))
}

/// How many frames the interface has dropped that its network sent (the fourth number of those after eight, in
/// `/proc/net/dev`).
fn dropped_of(text: &str) -> Option<u64> {
    let numbers = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(MEMBER_INTERFACE)?.strip_prefix(':'))?;
    numbers.split_whitespace().nth(8 + 3)?.parse().ok()
}

/// Longest frame: the longest that a network sends at once, with its headers.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; 128 << 10]
}

/// Whether this user can make such devices; if not, says why.
pub(crate) fn check() -> io::Result<()> {
    fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_what_was_sent() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop\n    \
                    lo:  1 1 0 0 0 0 0 0  1 1 0 9 0 0 0 0\n  \
                    eth0: 24 7 0 3 0 0 0 0 30 8 0 5 0 0 0 0\n";
        assert_eq!(dropped_of(text), Some(5));
        assert_eq!(dropped_of("eth1: 1"), None);
    }
}
