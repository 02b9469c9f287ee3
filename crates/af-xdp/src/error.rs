//! Why datagrams can't bypass the network stack.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tributary_ebpf::causes;

/// What a way past the network stack needs.
pub(crate) const PORTS_NEED: &str = "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
pub(crate) const DELIVERIES_NEED: &str =
    "a ring needs CAP_NET_ADMIN and CAP_BPF, or the host's service (tributary rings)";

/// Why a port's datagrams can't come past the network stack.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There was no clang when this library was built.
    #[error("the programs for the kernel were not built: no clang")]
    NotBuilt,
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
    /// This process may not.
    #[error("interface {interface}: not permitted; {needs}")]
    NotPermitted {
        /// The interface.
        interface: String,
        /// Which way needs which capabilities.
        needs: &'static str,
    },
    /// Another program or socket has the interface.
    #[error("interface {interface}: another process has it for XDP")]
    InUse {
        /// The interface.
        interface: String,
    },
    /// The kernel, or the interface's driver, refuses.
    #[error("interface {interface}: {problem}")]
    Refused {
        /// The interface.
        interface: String,
        /// What it says.
        problem: String,
    },
    /// More ports than the table holds, or more rings than there are.
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

    /// What an error at an interface means for a way that needs this.
    pub(crate) fn at(
        interface: &str,
        needs: &'static str,
        error: &(dyn std::error::Error + 'static),
    ) -> Self {
        let interface = interface.to_owned();
        match os_error(error).map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied) => Self::NotPermitted { interface, needs },
            Some(io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists) => {
                Self::InUse { interface }
            }
            _ => Self::Refused { interface, problem: causes(error) },
        }
    }
}

/// The system's error below an error.
fn os_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the call")]
    struct Call(#[source] io::Error);

    #[test]
    fn errors_say_what_to_do() {
        let said = |errno| {
            let call = Call(io::Error::from_raw_os_error(errno));
            OpenError::at("eth0", PORTS_NEED, &call).to_string()
        };
        let busy = "interface eth0: another process has it for XDP";
        assert_eq!(said(16), busy, "EBUSY");
        assert_eq!(said(17), busy, "EEXIST");
        assert!(said(1).contains("needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "EPERM");
        assert!(said(95).starts_with("interface eth0: the call: "), "EOPNOTSUPP");
    }
}
