//! How the ranks of a communicator part into several: those of each part meet anew, at an address that the
//! communicator they come from hands around.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use pyo3::prelude::*;
use tributary_client::{Collective, CollectiveError, Context, Operation};
use tributary_rendezvous::Rendezvous;
use tributary_wire::Operator;

use crate::errors::{self, SetUpError};
use crate::lane::Lane;

/// How long the others of a part may take to come to the address.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Room for a colour, a key and an address.
const REQUEST_BYTES: usize = 80;

/// What every rank says of itself.
struct SplitRequest {
    color: i64,
    key: i64,
    rank: u32,
    address: String,
}

/// Why there is no part.
pub(crate) enum SplitError {
    Exchange(CollectiveError),
    Meet(String),
}

impl SplitError {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Exchange(error) => errors::of_collective(py, &error),
            Self::Meet(problem) => SetUpError::new_err(problem),
        }
    }
}

/// The part of the ranks with this rank's `color`, in the order of their keys; none for a negative colour.
/// Collective over the lane's ranks.
pub(crate) fn split(
    lane: &Lane,
    context: &Context,
    rank: u32,
    size: u32,
    color: i64,
    key: i64,
) -> Result<Option<Rendezvous>, SplitError> {
    let listener = listen(lane, context);
    let address = listener.as_ref().map_or(String::new(), |(_, address)| address.to_string());
    let mine = SplitRequest { color, key, rank, address };
    let mut part = exchange(lane, &mine, size).map_err(SplitError::Exchange)?;
    part.retain(|request| request.color == color);
    if color < 0 {
        return Ok(None);
    }
    part.sort_by_key(|request| (request.key, request.rank));
    let own =
        part.iter().position(|request| request.rank == rank).expect("this rank's request is there");
    let first = &part[0];
    let met = match listener {
        Ok((listener, _)) if own == 0 => Rendezvous::gather(listener, part.len() as u32, TIMEOUT),
        Err(problem) if own == 0 => return Err(SplitError::Meet(problem)),
        _ if first.address.is_empty() => {
            return Err(SplitError::Meet(format!("rank {} can't listen", first.rank)));
        }
        _ => Rendezvous::meet(&first.address, own as u32, part.len() as u32, TIMEOUT),
    };
    met.map(Some).map_err(|error| SplitError::Meet(error.to_string()))
}

/// Every rank listens, for none knows yet whether it is the first of its part.
fn listen(lane: &Lane, context: &Context) -> Result<(TcpListener, SocketAddr), String> {
    let listener = if lane.communicator().is_on_one_host() {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?
    } else {
        context.listen()?
    };
    let bound = listener.local_addr().map_err(|error| error.to_string())?;
    Ok((listener, bound))
}

fn exchange(
    lane: &Lane,
    mine: &SplitRequest,
    size: u32,
) -> Result<Vec<SplitRequest>, CollectiveError> {
    let source = mine.encode();
    let mut target = vec![0; REQUEST_BYTES * size as usize];
    let operation = Operation {
        collective: Collective::Allgather,
        operator: Operator::Broadcast,
        elements: REQUEST_BYTES as u64,
        source: source.as_ptr(),
        target: target.as_mut_ptr(),
        ..Operation::BARRIER
    };
    // SAFETY: both buffers are this function's, as long as the operation says, and outlive the call.
    unsafe { lane.run(&operation) }?;
    Ok((0..)
        .zip(target.chunks_exact(REQUEST_BYTES))
        .map(|(rank, bytes)| SplitRequest::decode(rank, bytes))
        .collect())
}

impl SplitRequest {
    fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&self.color.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.to_le_bytes());
        // The longest socket address has 58 characters.
        bytes[16..16 + self.address.len()].copy_from_slice(self.address.as_bytes());
        bytes
    }

    fn decode(rank: u32, bytes: &[u8]) -> Self {
        let word =
            |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let text = &bytes[16..];
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let address = String::from_utf8_lossy(&text[..end]).into_owned();
        Self { color: word(0), key: word(8), rank, address }
    }
}
