//! The address at which other hosts reach this one.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use tributary_settings::InterfaceChoice;

use super::interfaces::host_addresses;

/// Why this host can't say where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address of the manager can't be reached from here.
    #[error("this host has no route to the manager at {manager}: {problem}")]
    NoRoute {
        /// Where it was looked for.
        manager: String,
        /// What the system says.
        problem: String,
    },
    /// No address of this host is one that other hosts may use.
    #[error("this host has no address on {wanted} (TRIBUTARY_INTERFACE)")]
    NoInterface {
        /// What was asked for.
        wanted: String,
    },
    /// Nothing tells which of this host's addresses others reach.
    #[error("without a manager, the address of this host must be given (TRIBUTARY_HOST_ADDRESS)")]
    Unknown,
}

/// The address given, or the first that is admitted where a choice is, or the one from which this host reaches the manager:
/// the network that the job's control takes is one that all hosts have.
pub fn own_address(
    given: Option<IpAddr>,
    admitted: Option<&InterfaceChoice>,
    manager: Option<&str>,
) -> Result<IpAddr, AddressError> {
    if let (None, Some(choice)) = (given, admitted) {
        let first = host_addresses(admitted).first().map(|it| it.address);
        return first.ok_or_else(|| AddressError::NoInterface { wanted: choice.to_string() });
    }
    match (given, manager) {
        (Some(address), _) => Ok(address),
        (None, Some(manager)) => towards(manager).map_err(|error| AddressError::NoRoute {
            manager: manager.to_owned(),
            problem: error.to_string(),
        }),
        (None, None) => Err(AddressError::Unknown),
    }
}

/// Connecting a datagram socket sends nothing, but chooses the address to send from.
fn towards(manager: &str) -> std::io::Result<IpAddr> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in manager.to_socket_addrs()? {
        let any: SocketAddr = if address.is_ipv4() {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let chosen = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match chosen {
            Ok(chosen) => return Ok(chosen.ip()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_manager_tells_the_address() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(own_address(None, None, Some("127.0.0.1:7470")), Ok(loopback));
        let given = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(own_address(Some(given), None, Some("127.0.0.1:7470")), Ok(given));
        assert_eq!(own_address(None, None, None), Err(AddressError::Unknown));
        let no_route = own_address(None, None, Some("nowhere"));
        assert!(matches!(no_route, Err(AddressError::NoRoute { .. })));
        let none = InterfaceChoice::parse("no-such-one");
        let none_there = own_address(None, none.as_ref(), Some("127.0.0.1:7470"));
        assert!(none_there.unwrap_err().to_string().contains("no-such-one"));
        assert_eq!(own_address(Some(given), none.as_ref(), None), Ok(given));
    }
}
