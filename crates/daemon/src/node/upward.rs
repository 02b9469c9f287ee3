//! The connection from an aggregation node to its parent.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use tributary_transport::{
    ConnectError, OptionsError, ShmOptions, TcpOptions, connect_shm, connect_tcp, machine,
};
use tributary_wire::control::NodeAddress;

use super::links::AnyLink;

/// How long the parent may take to answer. Less than the manager waits for an install.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Why there is no link to the parent.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpwardError {
    #[error("the parent's address {address} leads nowhere: {source}")]
    NoAddress { address: String, source: io::Error },
    #[error("the parent at {address} can't be reached: {source}")]
    Connect { address: String, source: ConnectError },
    #[error("no link carries the group's segments: {0}")]
    Options(#[from] OptionsError),
}

/// Connects to the aggregator at `address`: over shared memory if both are on one machine and both offer
/// it, else over TCP. Blocks for at most [`CONNECT_WITHIN`] plus the time of a name lookup.
pub(super) fn connect(
    address: &NodeAddress,
    payload_max_bytes: u32,
    allow_shm: bool,
) -> Result<AnyLink, UpwardError> {
    match &address.shm {
        Some(path) if allow_shm && address.machine == machine::name() => {
            let options = ShmOptions::new(payload_max_bytes)?;
            connect_shm(Path::new(path), options, CONNECT_WITHIN)
                .map(AnyLink::Shm)
                .map_err(|source| UpwardError::Connect { address: path.clone(), source })
        }
        _ => {
            let options = TcpOptions::new(payload_max_bytes)?;
            let target = resolve(&address.tcp)?;
            connect_tcp(target, options, CONNECT_WITHIN)
                .map(AnyLink::Tcp)
                .map_err(|source| UpwardError::Connect { address: address.tcp.clone(), source })
        }
    }
}

fn resolve(address: &str) -> Result<SocketAddr, UpwardError> {
    let nowhere = |source| UpwardError::NoAddress { address: address.to_owned(), source };
    let mut found = address.to_socket_addrs().map_err(nowhere)?;
    found.next().ok_or_else(|| nowhere(io::ErrorKind::AddrNotAvailable.into()))
}
