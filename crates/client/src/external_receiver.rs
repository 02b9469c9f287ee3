//! An external receiver: a process outside a group that reads the group's results, such as a monitor or a
//! checkpoint.
//!
//! Owns the way from a grant in a file to results as they come. The job asks for the grant
//! (`TRIBUTARY_EXTERNAL_RECEIVER`) and writes it; a process that may read the file may read the results, and can do
//! nothing else with it. The group never waits for this process: results that are complete before it
//! has joined it misses, and if it reads too slowly it loses its place and is told so. If the group's tree is
//! lost, the job goes on, and writes the next tree's grant to the same file; what is complete in between this
//! process misses. It knows nothing of the job's communicators.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use tributary_inter_host::failover;
use tributary_report::output;
use tributary_transport::{
    AuthenticationKey, Link, OptionsError, Sent, TcpLink, TcpOptions, connect_tcp, wait,
};
use tributary_wire::control::{ExternalReceiverGrant, GroupGrant};
use tributary_wire::frame::{Abort, AbortReason, EXTERNAL_RECEIVER, Edge, Header, Message};
use tributary_wire::{Datatype, OperationNumber, Operator};

/// An external receiver that has joined its group.
pub struct ExternalReceiver {
    link: TcpLink,
    edge: Edge,
    segment_max_bytes: u32,
}

/// One segment of a result. The segments of one vector are equally long but the last, and come in
/// any order; the bytes are elements in the job's own byte order, which is little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// Which operation of the group, counted from 0, modulo 2^32. Those without data count too.
    pub operation: u32,
    /// Where in the operation's vector the segment begins, in elements.
    pub first_element: u64,
    /// How the elements were combined.
    pub operator: Operator,
    /// What they are.
    pub datatype: Datatype,
    /// The elements.
    pub bytes: &'a [u8],
}

/// Why an external receiver did not get in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The grant's address is none.
    #[error("the grant names {address:?}, which is no address")]
    NoAddress {
        /// What it names.
        address: String,
    },
    /// The grant's segments are longer than any frame.
    #[error("the grant is none: {0}")]
    Grant(#[from] OptionsError),
    /// Nobody is reached there.
    #[error("aggregation node at {address} can't be reached: {problem}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// Why not.
        problem: String,
    },
    /// It did not answer in time.
    #[error("aggregation node at {address} did not answer within {} ms", within.as_millis())]
    Silent {
        /// Where.
        address: SocketAddr,
        /// How long it had.
        within: Duration,
    },
    /// It refused the grant, most likely because the group is gone or somebody else has the place.
    #[error("aggregation node at {address} turned this process away")]
    TurnedAway {
        /// Where.
        address: SocketAddr,
    },
}

/// Why no more results come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The group has ended in good order; every result since the join was delivered.
    #[error("the group has ended")]
    InOrder,
    /// This process did not read in time, and was dropped by the group.
    #[error("this process read too slowly, and results were lost")]
    FellBehind,
    /// The group failed.
    #[error("the group failed: {0}")]
    Failed(AbortReason),
    /// The aggregator is gone, or sent what is no result.
    #[error("the aggregation node is gone")]
    NodeLost,
}

impl Ended {
    /// Whether the job may go on without this tree, and write the grant of another.
    #[must_use]
    pub fn is_tree_lost(self) -> bool {
        match self {
            Self::NodeLost => true,
            Self::Failed(reason) => failover::is_tree_lost(reason),
            Self::InOrder | Self::FellBehind => false,
        }
    }
}

/// Mode of a grant's file: a process that reads it may read the results.
const GRANT_MODE: u32 = 0o600;

/// Writes how a group's results may be read from outside, if they may, where only the owner of `path` may read it, all
/// of it at once. Fails in one line that names the file.
pub(crate) fn write_grant(grant: &GroupGrant, path: &Path) -> Result<(), String> {
    let Some(grant) = &grant.external_receiver else { return Ok(()) };
    let text = serde_json::to_vec(grant).expect("a grant is plain data");
    output::write(path, &text, GRANT_MODE).map_err(|error| format!("{}: {error}", path.display()))
}

impl ExternalReceiver {
    /// Takes the place that a grant gives, and waits at most `within` for the aggregator to say so.
    ///
    /// # Errors
    /// If the place is not to be had.
    pub fn join(grant: &ExternalReceiverGrant, within: Duration) -> Result<Self, JoinError> {
        let no_address = || JoinError::NoAddress { address: grant.address.tcp.clone() };
        let mut addresses = grant.address.tcp.to_socket_addrs().map_err(|_| no_address())?;
        let address = addresses.next().ok_or_else(no_address)?;
        let mut link = connect_tcp(address, TcpOptions::new(grant.payload_max_bytes)?, within)
            .map_err(|error| JoinError::Unreachable { address, problem: error.to_string() })?;
        if let Some(key) = grant.key {
            link.authenticate(AuthenticationKey::new(key));
        }
        let edge = Edge {
            group: grant.group,
            epoch: grant.epoch,
            child: EXTERNAL_RECEIVER,
            capability: grant.capability,
            version: grant.frame_version,
        };
        let mut receiver = Self { link, edge, segment_max_bytes: grant.payload_max_bytes };
        let join = Header { edge, message: Message::Join }.encode();
        if receiver.link.send(&join, &[]) != Ok(Sent::Taken) {
            return Err(JoinError::TurnedAway { address });
        }
        let hangs_at = Instant::now() + within;
        loop {
            match receiver.link.receive() {
                Ok(Some(frame)) if frame.header == (Header { edge, message: Message::Joined }) => {
                    return Ok(receiver);
                }
                Ok(None) if Instant::now() < hangs_at => receiver.sleep(hangs_at),
                Ok(None) => return Err(JoinError::Silent { address, within }),
                Ok(Some(_)) | Err(_) => return Err(JoinError::TurnedAway { address }),
            }
        }
    }

    /// The next segment of a result; none if none has come within `timeout`.
    ///
    /// # Errors
    /// If no more come.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Delivery<'_>>, Ended> {
        let until = Instant::now() + timeout;
        while !self.link.is_ready() {
            if Instant::now() >= until {
                return Ok(None);
            }
            self.sleep(until);
        }
        let frame = match self.link.receive() {
            Ok(Some(frame)) => frame,
            // Only room has appeared.
            Ok(None) => return Ok(None),
            Err(_) => return Err(Ended::NodeLost),
        };
        match frame.header.message {
            _ if frame.header.edge != self.edge => Err(Ended::NodeLost),
            Message::Result(part) => {
                let datatype = part.shape.datatype();
                let whole = self.segment_max_bytes / datatype.size_bytes() as u32;
                Ok(Some(Delivery {
                    operation: part.operation.0.wrapping_sub(OperationNumber::FIRST.0),
                    first_element: u64::from(part.segment.0) * u64::from(whole),
                    operator: part.shape.operator(),
                    datatype,
                    bytes: frame.payload,
                }))
            }
            Message::Leave => Err(Ended::InOrder),
            Message::Abort(Abort { reason: AbortReason::FellBehind, .. }) => Err(Ended::FellBehind),
            Message::Abort(abort) => Err(Ended::Failed(abort.reason)),
            _ => Err(Ended::NodeLost),
        }
    }

    fn sleep(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        // A wait that fails is a link that fails, and the next poll says so.
        let _ = wait(std::slice::from_mut(&mut self.link), Duration::ZERO, Some(left));
    }
}
