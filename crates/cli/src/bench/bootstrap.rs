//! A rank's path to its parent, which is its bootstrap.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tributary_client::{Bootstrap, BootstrapError};

use super::message::{Assignment, FromRank, ToRank, Work};

/// The rank's end of the socket, and who the rank is.
pub(super) struct Parent {
    socket: UnixStream,
    rank: u32,
    ranks: u32,
}

impl Parent {
    /// Takes the socket that the parent left as standard input, and the first message on it.
    pub(super) fn meet() -> io::Result<(Self, Work)> {
        let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        match ToRank::read(&mut socket)? {
            ToRank::Start(Assignment { rank, ranks, work }) => {
                Ok((Self { socket, rank, ranks }, work))
            }
            ToRank::Gathered(_) => Err(io::Error::other("the parent did not start with the work")),
        }
    }

    /// Tells the parent something.
    pub(super) fn tell(&mut self, message: &FromRank) -> io::Result<()> {
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
            ToRank::Start(_) => Err(BootstrapError("the parent started twice".to_owned())),
        }
    }
}
