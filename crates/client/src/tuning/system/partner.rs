//! The other end of what is measured: a process that sends every frame back, and the link to it.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tributary_transport::{Link, Listener, TcpAcceptor, TcpLink, TcpOptions, connect_tcp};

use super::cores::pin;
use super::{SHORT_BYTES, failed};
use crate::tuning::measure::{EncodedHeader, LONG_BYTES, MeasureError, frame};

/// How long a partner may take to come.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// How a partner waits for the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartnerWaits {
    /// It looks, gives way, and looks again.
    Yielding,
    /// It sleeps in `poll`.
    Sleeping,
}

/// Another process, which sends every frame back until its link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner {
    /// Where it connects to.
    pub address: SocketAddr,
    /// The core that it runs on.
    pub core: usize,
    /// How it waits.
    pub waits: PartnerWaits,
}

impl Partner {
    /// Does its part, in a process of its own.
    ///
    /// # Errors
    /// If it can't connect, or may not run on its core.
    pub fn run(&self) -> Result<(), MeasureError> {
        pin(self.core)?;
        let link = connect_tcp(self.address, options(), TIMEOUT);
        let mut end = End::new(link.map_err(|error| failed("the partner's link")(&error))?);
        let (header, payload) = frame(SHORT_BYTES);
        // A link that has ended is the end of the partner's work.
        while let Ok(()) = end.receive(self.waits) {
            if end.send(&header, &payload).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// One end of a link.
pub(super) struct End(TcpLink);

impl End {
    pub(super) fn new(link: TcpLink) -> Self {
        Self(link)
    }

    pub(super) fn send(
        &mut self,
        header: &EncodedHeader,
        payload: &[u8],
    ) -> Result<(), MeasureError> {
        // At most one frame is under way: the socket has room.
        let sent = self.0.send(header, payload).and_then(|_| self.0.flush());
        sent.map(drop).map_err(|error| failed("a frame")(&error))
    }

    /// Takes a frame if there is one.
    pub(super) fn look(&mut self) -> Result<bool, MeasureError> {
        match self.0.receive() {
            Ok(found) => Ok(black_box(found).is_some()),
            Err(error) => Err(failed("a frame")(&error)),
        }
    }

    /// Takes the next frame.
    pub(super) fn receive(&mut self, waits: PartnerWaits) -> Result<(), MeasureError> {
        while !self.look()? {
            match waits {
                PartnerWaits::Yielding => std::thread::yield_now(),
                PartnerWaits::Sleeping => {
                    let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
                    // An interrupted sleep is a short one.
                    let _ = poll(&mut fds, None);
                }
            }
        }
        Ok(())
    }

    /// Asks the kernel about the link, without sleeping.
    pub(super) fn poll_now(&self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = black_box(poll(&mut fds, Some(&now)));
    }
}

pub(super) fn options() -> TcpOptions {
    TcpOptions::new(LONG_BYTES as u32).expect("a frame may be that long")
}

pub(super) fn accept(acceptor: &mut TcpAcceptor) -> Result<TcpLink, MeasureError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match acceptor.accept(Instant::now()) {
            Ok(Some(link)) => return Ok(link),
            Ok(None) if Instant::now() >= deadline => {
                return Err(MeasureError("no partner came".to_owned()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(failed("a link")(&error)),
        }
    }
}
