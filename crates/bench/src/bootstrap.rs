//! A rank's connection to its parent, which is its bootstrap.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tributary_client::{Bootstrap, BootstrapError};

use crate::message::{Assignment, FromRank, ToRank};
use crate::work::Work;

/// The rank's end of the socket, and its rank number.
pub(crate) struct Parent {
    socket: UnixStream,
    rank: u32,
    ranks: u32,
}

impl Parent {
    /// Takes the socket from standard input, and receives the first message.
    pub(crate) fn meet() -> io::Result<(Self, Work)> {
        let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        match ToRank::read(&mut socket)? {
            ToRank::Start(Assignment { rank, ranks, work }) => {
                Ok((Self { socket, rank, ranks }, work))
            }
            ToRank::Gathered(_) => {
                Err(io::Error::other("the parent's first message is not the work"))
            }
        }
    }

    /// Sends a message to the parent.
    pub(crate) fn tell(&mut self, message: &FromRank) -> io::Result<()> {
        message.write(&mut self.socket)
    }
}

impl Bootstrap for Parent {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.ranks
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let failed = |error: io::Error| BootstrapError(error.to_string());
        self.tell(&FromRank::Gather(mine.to_vec())).map_err(failed)?;
        match ToRank::read(&mut self.socket).map_err(failed)? {
            ToRank::Gathered(parts) if parts.len() == all.len() => {
                all.copy_from_slice(&parts);
                Ok(())
            }
            ToRank::Gathered(parts) => Err(BootstrapError(format!(
                "{} bytes came back where {} are needed",
                parts.len(),
                all.len()
            ))),
            ToRank::Start(_) => Err(BootstrapError("the parent sent the work twice".to_owned())),
        }
    }
}
