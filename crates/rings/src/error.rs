//! Why a job does not get what it asked for.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use tributary_af_xdp::OpenError;
use tributary_ebpf::causes;

/// What a program needs that copies datagrams into rings.
pub(crate) const RINGS_NEED: &str = "rings need CAP_NET_ADMIN and CAP_BPF in the service";
/// What sockets of AF_XDP need.
pub(crate) const SOCKETS_NEED: &str =
    "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF in the service";

/// Why a job does not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There was no clang when the service was built.
    #[error("the programs for the kernel were not built: no clang")]
    NotBuilt,
    /// The address is nobody's, or the system does not say whose.
    #[error(transparent)]
    Address(#[from] OpenError),
    /// The operator does not offer that.
    #[error("{0}")]
    NotOffered(String),
    /// The service may not.
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
    /// More jobs or addresses than tables hold.
    #[error("interface {interface}: no room for one more")]
    Full {
        /// The interface.
        interface: String,
    },
    /// What goes to an address is delivered elsewhere.
    #[error("interface {interface}: {target} is another receiver's")]
    Claimed {
        /// The interface.
        interface: String,
        /// The address.
        target: SocketAddr,
    },
}

impl ServeError {
    /// What an error at an interface means for a way that needs this.
    pub(crate) fn at(interface: &str, needs: &'static str, error: &(dyn Error + 'static)) -> Self {
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
fn os_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
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
            ServeError::at("eth0", SOCKETS_NEED, &call).to_string()
        };
        let busy = "interface eth0: another process has it for XDP";
        assert_eq!(said(16), busy, "EBUSY");
        assert_eq!(said(17), busy, "EEXIST");
        assert!(said(1).contains("needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "EPERM");
        assert!(said(95).starts_with("interface eth0: the call: "), "EOPNOTSUPP");
    }
}
