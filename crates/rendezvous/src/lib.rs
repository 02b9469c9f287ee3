//! How the processes of a job find each other where no launcher connects them: rank 0 listens at an address
//! that all know, the others connect to it, and it carries their exchanges.
//!
//! Owns the sockets until communicators are set up, and who is told when somebody is missing. Must not know
//! what is exchanged. Nothing is authenticated or encrypted here: the address belongs on a network that the
//! job's users trust, as a job's other rendezvous does. Start at [`Rendezvous`].

mod arrivals;
mod error;
mod frame;
mod hub;
mod member;

use std::net::TcpListener;
use std::time::Duration;

use tributary_client::{Bootstrap, BootstrapError};

pub use error::RendezvousError;
use hub::Hub;
use member::Member;

/// One process's connection to all others of its job, through rank 0.
#[derive(Debug)]
pub struct Rendezvous {
    rank: u32,
    size: u32,
    part: Part,
}

#[derive(Debug)]
enum Part {
    Hub(Hub),
    Member(Member),
}

impl Rendezvous {
    /// Meets the other processes: rank 0 listens at `address` (`HOST:PORT`), the others connect to it.
    /// Collective over `size` processes. Waits for `timeout` at most, here and in every later exchange.
    ///
    /// # Errors
    /// If ranks are missing or do not fit together: which ones. A rank that reached rank 0 gets its reason.
    pub fn meet(
        address: &str,
        rank: u32,
        size: u32,
        timeout: Duration,
    ) -> Result<Self, RendezvousError> {
        if rank >= size {
            return Err(RendezvousError::NoSuchRank { rank, size });
        }
        let part = if rank == 0 {
            Part::Hub(Hub::listen(address, size, timeout)?)
        } else {
            Part::Member(Member::join(address, rank, size, timeout)?)
        };
        Ok(Self { rank, size, part })
    }

    /// Meets the others as their rank 0, which listens already.
    ///
    /// # Errors
    /// As [`Rendezvous::meet`].
    pub fn gather(
        listener: TcpListener,
        size: u32,
        timeout: Duration,
    ) -> Result<Self, RendezvousError> {
        Ok(Self { rank: 0, size, part: Part::Hub(Hub::gather(listener, size, timeout)?) })
    }
}

impl Bootstrap for Rendezvous {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        assert_eq!(all.len(), mine.len() * self.size as usize, "room for every rank's bytes");
        let exchanged = match &mut self.part {
            Part::Hub(hub) => hub.allgather(mine, all),
            Part::Member(member) => member.allgather(mine, all),
        };
        exchanged.map_err(|error| BootstrapError(error.to_string()))
    }
}
