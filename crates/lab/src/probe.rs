//! Frames that check a lab's links: one member sends them numbered and timed, others note what arrives and when.
//!
//! Both are processes in members. All members share this machine's clock, and a receiver's kernel notes when a frame
//! came in, so a time is that of the way alone.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

/// Where receivers listen.
const PORT: u16 = 7476;

/// The group that all receivers are in.
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 78, 1);

const FRAME_BYTES: usize = 64;

/// Frames that arrive while a receiver does not run wait in its socket.
const SOCKET_BYTES: libc::c_int = 16 << 20;

/// What a probing process is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// Send frames.
    Send(Sending),
    /// Note frames until standard input closes.
    Receive,
}

/// Frames to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// Receivers, one after the other; the group is one.
    pub(crate) targets: Vec<Ipv4Addr>,
    /// To each of them.
    pub(crate) frames: u32,
    /// From one frame to the next.
    pub(crate) interval_ns: u64,
}

/// What one receiver noted of one flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Frames that arrived.
    pub received: u32,
    /// Frames that arrived behind one that was sent later, or a second time.
    pub disordered: u32,
    /// The shortest way, the median, what 99 of 100 do not exceed, and the longest, in nanoseconds.
    pub ways_ns: [i64; 4],
}

/// What a receiver noted: of frames to it alone, and of those to the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) alone: Arrivals,
    pub(crate) group: Arrivals,
}

impl Probe {
    /// Does it, and writes to standard output: that it is ready, and at the end what it noted, each on a line.
    ///
    /// # Errors
    /// If a socket refuses.
    pub fn run(&self) -> io::Result<()> {
        match self {
            Self::Send(sending) => sending.run(),
            Self::Receive => receive(),
        }
    }
}

impl Sending {
    fn run(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let mut due = Instant::now();
        for number in 0..self.frames {
            for target in &self.targets {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due += Duration::from_nanos(self.interval_ns);
                socket
                    .send_to(&frame(number, *target == GROUP), SocketAddrV4::new(*target, PORT))?;
            }
        }
        Ok(())
    }
}

fn frame(number: u32, is_to_group: bool) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&number.to_le_bytes());
    frame[4] = u8::from(is_to_group);
    frame[8..16].copy_from_slice(&clock_ns().to_le_bytes());
    frame
}

fn receive() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED)?;
    socket.set_nonblocking(true)?;
    enlarge(&socket);
    // The first call makes the kernel note times.
    let _ = read_arrival_ns(&socket);
    let mut output = io::stdout().lock();
    writeln!(output, "ready")?;
    output.flush()?;
    let (mut alone, mut group) = (Flow::default(), Flow::default());
    let mut end = io::stdin().lock();
    loop {
        let mut watched = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_ended = !watched[1].revents().is_empty();
        let mut bytes = [0; FRAME_BYTES];
        while let Ok(FRAME_BYTES) = socket.recv(&mut bytes) {
            let flow = if bytes[4] == 1 { &mut group } else { &mut alone };
            flow.note(&bytes, read_arrival_ns(&socket)?);
        }
        if has_ended && end.read(&mut [0])? == 0 {
            let noted = Noted { alone: alone.arrivals(), group: group.arrivals() };
            return writeln!(output, "{}", serde_json::to_string(&noted)?);
        }
    }
}

/// One flow's arrivals so far.
#[derive(Default)]
struct Flow {
    last: Option<u32>,
    disordered: u32,
    ways_ns: Vec<i64>,
}

impl Flow {
    fn note(&mut self, frame: &[u8; FRAME_BYTES], arrived_ns: i64) {
        let number = u32::from_le_bytes(frame[..4].try_into().expect("four bytes"));
        let sent_ns = i64::from_le_bytes(frame[8..16].try_into().expect("eight bytes"));
        if self.last.is_some_and(|last| number <= last) {
            self.disordered += 1;
        }
        self.last = self.last.max(Some(number));
        self.ways_ns.push(arrived_ns - sent_ns);
    }

    fn arrivals(mut self) -> Arrivals {
        self.ways_ns.sort_unstable();
        let last = self.ways_ns.len().saturating_sub(1);
        let at = |share: f64| {
            self.ways_ns.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
        };
        Arrivals {
            received: self.ways_ns.len() as u32,
            disordered: self.disordered,
            ways_ns: [at(0.0), at(0.5), at(0.99), at(1.0)],
        }
    }
}

fn enlarge(socket: &UdpSocket) {
    let bytes = SOCKET_BYTES;
    for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
        // SAFETY: the call reads one number of the size given. If both are refused, the kernel's own size has to do.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            )
        };
        if result == 0 {
            return;
        }
    }
}

/// When the frame that was last read came in, by the kernel's note.
fn read_arrival_ns(socket: &UdpSocket) -> io::Result<i64> {
    /// `SIOCGSTAMPNS` of `linux/sockios.h`, in its form for 64-bit machines.
    const LAST_ARRIVAL: libc::c_ulong = 0x8907;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a `timespec`, which `time` is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), LAST_ARRIVAL as _, &raw mut time) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(time.tv_sec * 1_000_000_000 + time.tv_nsec),
    }
}

/// The clock by which the kernel notes arrivals.
fn clock_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_count_what_came_out_of_order_or_twice() {
        let mut flow = Flow::default();
        for number in [0, 1, 4, 3, 4, 5] {
            let frame = frame(number, false);
            let sent_ns = i64::from_le_bytes(frame[8..16].try_into().unwrap());
            flow.note(&frame, sent_ns + 100 + i64::from(number));
        }
        assert_eq!(
            flow.arrivals(),
            Arrivals { received: 6, disordered: 2, ways_ns: [100, 104, 105, 105] }
        );
        assert_eq!(Flow::default().arrivals(), Arrivals::default());
    }
}
