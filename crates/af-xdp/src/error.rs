//! Why datagrams can't bypass the network stack.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a process's datagrams can't come past the network stack.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is not this host's.
    #[error("no network interface has the address {0}")]
    NoInterface(IpAddr),
    /// The system does not say what this host has.
    #[error("{what}: {problem}")]
    Host {
        /// What was asked for.
        what: &'static str,
        /// What the system says.
        problem: io::Error,
    },
    /// All rings are taken.
    #[error("interface {interface}: no room for one more port")]
    Full {
        /// The interface.
        interface: String,
    },
    /// What goes to an address is to show something else already.
    #[error("interface {interface}: {target} is another receiver's")]
    Claimed {
        /// The interface.
        interface: String,
        /// The address.
        target: SocketAddr,
    },
    /// Nobody, or nobody who can be believed, offers rings on this host.
    #[error("no service of rings at {service}: {problem}")]
    NoService {
        /// Where it was looked for.
        service: String,
        /// What the system says.
        problem: io::Error,
    },
    /// The host's service refuses, or does not answer.
    #[error("the service of rings at {service}: {problem}")]
    Service {
        /// Where it is.
        service: String,
        /// What it says.
        problem: String,
    },
}

impl OpenError {
    /// Whether all that is wrong is that this host has no service.
    #[must_use]
    pub fn is_no_service(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        matches!(self, Self::NoService { problem, .. }
            if matches!(problem.kind(), NotFound | ConnectionRefused))
    }
}
