//! The caller's side of a session.

use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{Answer, Request};
use crate::channel::{self, Receiver};

/// Why a command in a member gave no exit status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// Nobody answers at the member's socket: the member or the whole lab is gone.
    #[error("nobody answers at {}", socket.display())]
    Gone {
        /// The member's socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The member could not start the command.
    #[error("{reason}")]
    Refused {
        /// The member's explanation.
        reason: String,
    },
    /// The member ended before the command did.
    #[error("the member ended, and the command with it")]
    Lost,
}

/// A command that runs in a member.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    socket: PathBuf,
}

/// Sends signals to a session's command.
#[derive(Debug)]
pub struct Signaller(UnixStream);

impl Signaller {
    /// Sends one signal by its number.
    ///
    /// # Errors
    /// If the command has ended.
    pub fn send(&self, signal: u8) -> io::Result<()> {
        (&self.0).write_all(&[signal])
    }
}

impl Session {
    /// Starts a command at the member with this socket; it gets the three descriptors as standard
    /// input, output and error.
    ///
    /// # Errors
    /// If the member does not accept the request. [`Session::wait`] reports a command that did not start.
    pub fn start(
        socket: &Path,
        request: &Request,
        descriptors: [BorrowedFd<'_>; 3],
    ) -> Result<Self, ExecError> {
        let gone = |source| ExecError::Gone { socket: socket.to_owned(), source };
        let stream = UnixStream::connect(socket).map_err(gone)?;
        send_descriptors(&stream, &descriptors).map_err(|error| gone(error.into()))?;
        channel::send(&stream, request).map_err(gone)?;
        Ok(Self { stream, socket: socket.to_owned() })
    }

    /// A handle that sends signals while another thread waits.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn signaller(&self) -> io::Result<Signaller> {
        self.stream.try_clone().map(Signaller)
    }

    /// Waits for the command's end. A session that is dropped instead ends its command.
    ///
    /// # Errors
    /// If the command did not start, or the member ended.
    pub fn wait(self) -> Result<ExitStatus, ExecError> {
        let answer = Receiver::new(&self.stream)
            .receive::<Answer>()
            .map_err(|source| ExecError::Gone { socket: self.socket.clone(), source })?;
        match answer {
            Some(Answer::Ended { status }) => Ok(Answer::exit_status_of(status)),
            Some(Answer::Refused { reason }) => Err(ExecError::Refused { reason }),
            None => Err(ExecError::Lost),
        }
    }
}

fn send_descriptors(
    stream: &UnixStream,
    descriptors: &[BorrowedFd<'_>; 3],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits, "the buffer was made for three descriptors");
    // Descriptors travel only together with data, so one byte is sent.
    sendmsg(stream, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}
