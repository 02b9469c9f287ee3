//! The member's side: all sessions of one member.
//!
//! Owns the commands' process groups. Waits only for the request of a new caller; the member's loop
//! reports readable sockets and ended processes.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Answer, Request};
use crate::channel::{self, Receiver};

/// How long a new caller may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// How long a command may take to end by itself after its caller is gone.
const HANG_UP_GRACE: Duration = Duration::from_secs(2);

struct Entry {
    process: Pid,
    stream: UnixStream,
    /// Set if the caller is gone: when to kill the command.
    kill_at: Option<Instant>,
}

/// The sessions of one member.
#[derive(Default)]
pub(crate) struct Sessions(Vec<Entry>);

impl Sessions {
    /// Takes a connection and starts its command, or tells the caller why not.
    pub(crate) fn accept(&mut self, stream: UnixStream) {
        match start(&stream) {
            Ok(process) => self.0.push(Entry { process, stream, kill_at: None }),
            Err(error) => {
                // A caller that is gone has no use for the reason.
                let _ = channel::send(&stream, &Answer::Refused { reason: error.to_string() });
            }
        }
    }

    /// The sockets of callers that are not gone, with their places.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (usize, &UnixStream)> {
        let watched = self.0.iter().enumerate().filter(|(_, entry)| entry.kill_at.is_none());
        watched.map(|(at, entry)| (at, &entry.stream))
    }

    /// Handles input of the caller at a place: signals, or end of file.
    pub(crate) fn handle_readable(&mut self, at: usize, now: Instant) {
        let entry = &mut self.0[at];
        let mut signals = [0; 16];
        match (&entry.stream).read(&mut signals) {
            Ok(0) => entry.hang_up(now),
            Ok(count) => entry.pass_on(&signals[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => entry.hang_up(now),
        }
    }

    /// Tells the caller that its command has ended. Ignores processes that are no session's.
    pub(crate) fn handle_exit(&mut self, process: Pid, status: i32) {
        let Some(at) = self.0.iter().position(|entry| entry.process == process) else { return };
        let entry = self.0.swap_remove(at);
        // Fails if the caller is gone.
        let _ = channel::send(&entry.stream, &Answer::Ended { status });
    }

    /// Kills commands that have outlived their callers for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for entry in &mut self.0 {
            if entry.kill_at.is_some_and(|at| at <= now) {
                // Fails if the whole group has ended; its exit will be handled soon.
                let _ = kill_process_group(entry.process, Signal::KILL);
                entry.kill_at = Some(now + HANG_UP_GRACE);
            }
        }
    }

    /// When [`Sessions::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(|entry| entry.kill_at).min()
    }
}

impl Entry {
    fn hang_up(&mut self, now: Instant) {
        // Fails if it has ended already.
        let _ = kill_process_group(self.process, Signal::HUP);
        self.kill_at = Some(now + HANG_UP_GRACE);
    }

    fn pass_on(&self, signals: &[u8]) {
        for signal in signals {
            if let Some(signal) = Signal::from_named_raw(i32::from(*signal)) {
                // Only to the command: launchers forward signals to their processes themselves.
                let _ = kill_process(self.process, signal);
            }
        }
    }
}

fn start(stream: &UnixStream) -> io::Result<Pid> {
    stream.set_read_timeout(Some(REQUEST_WITHIN))?;
    let [input, output, error] = receive_descriptors(stream)?;
    let request: Request = Receiver::new(stream).receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    stream.set_nonblocking(true)?;
    let (program, arguments) =
        request.words.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(request.environment).current_dir(request.folder);
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(error));
    let child = command.process_group(0).spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", program.to_string_lossy()))
    })?;
    // The member's loop reaps it.
    Ok(Pid::from_child(&child))
}

fn receive_descriptors(stream: &UnixStream) -> io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // The kernel never restarts a receive with a timeout (signal(7)), and SIGCHLD comes whenever
    // another session's command ends.
    retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    descriptors.try_into().map_err(|_| io::Error::other("a request without three descriptors"))
}
