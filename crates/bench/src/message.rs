//! The messages between parent and ranks of a benchmark: one tag byte, a length, and a body. Both sides are
//! this program; lengths are bounded nevertheless.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::work::Work;

/// Longest body either side takes: the times of 10 million operations.
const BODY_MAX_BYTES: u32 = 80_000_000;

/// The first message to a rank: its rank number, and the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) work: Work,
}

/// The three times that one rank measures of an overlap, in nanoseconds, each an average over operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverlapTimes {
    pub(crate) pure_ns: u64,
    pub(crate) compute_ns: u64,
    pub(crate) overall_ns: u64,
}

/// A rank to its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromRank {
    /// This rank's part of an allgather.
    Gather(Vec<u8>),
    /// The communicator is set up; its path is `in_host`, `in_tree` or `direct`.
    Ready(String),
    /// Nanoseconds of each operation of the next step.
    Times(Vec<u64>),
    /// The overlap with computation in the next step, whose times follow.
    Overlap(OverlapTimes),
    /// The last message: all steps are done.
    Finished,
    /// The last message: why the rank failed.
    Failed(String),
}

/// The parent to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToRank {
    /// The work; the first message.
    Start(Assignment),
    /// All ranks' parts of the allgather, in rank order.
    Gathered(Vec<u8>),
}

impl FromRank {
    /// Sends this message.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Gather(part) => frame(to, 1, part),
            Self::Ready(path) => frame(to, 2, path.as_bytes()),
            Self::Times(times_ns) => {
                let bytes: Vec<u8> = times_ns.iter().flat_map(|time| time.to_le_bytes()).collect();
                frame(to, 3, &bytes)
            }
            Self::Overlap(OverlapTimes { pure_ns, compute_ns, overall_ns }) => {
                frame(to, 6, &[*pure_ns, *compute_ns, *overall_ns].map(u64::to_le_bytes).concat())
            }
            Self::Finished => frame(to, 4, &[]),
            Self::Failed(what) => frame(to, 5, what.as_bytes()),
        }
    }

    /// Receives the next message.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (tag, body) = unframe(from)?;
        match tag {
            1 => Ok(Self::Gather(body)),
            2 => Ok(Self::Ready(text(body)?)),
            3 if body.len() % 8 == 0 => Ok(Self::Times(
                body.chunks_exact(8)
                    .map(|time| u64::from_le_bytes(time.try_into().expect("chunks of 8 bytes")))
                    .collect(),
            )),
            4 => Ok(Self::Finished),
            5 => Ok(Self::Failed(text(body)?)),
            6 if body.len() == 24 => {
                let at = |index: usize| {
                    let time = body[8 * index..][..8].try_into().expect("eight bytes");
                    u64::from_le_bytes(time)
                };
                let (pure_ns, compute_ns, overall_ns) = (at(0), at(1), at(2));
                Ok(Self::Overlap(OverlapTimes { pure_ns, compute_ns, overall_ns }))
            }
            _ => Err(invalid(format!("message tag {tag} with {} bytes", body.len()))),
        }
    }
}

impl ToRank {
    /// Sends this message.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Start(assignment) => frame(to, 1, &serde_json::to_vec(assignment)?),
            Self::Gathered(all) => frame(to, 2, all),
        }
    }

    /// Receives the next message.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (tag, body) = unframe(from)?;
        match tag {
            1 => Ok(Self::Start(json(&body)?)),
            2 => Ok(Self::Gathered(body)),
            _ => Err(invalid(format!("message tag {tag} with {} bytes", body.len()))),
        }
    }
}

fn frame(to: &mut impl Write, tag: u8, body: &[u8]) -> io::Result<()> {
    let len_bytes = u32::try_from(body.len())
        .ok()
        .filter(|&len_bytes| len_bytes <= BODY_MAX_BYTES)
        .ok_or_else(|| invalid(format!("body of {} bytes", body.len())))?;
    let mut bytes = Vec::with_capacity(5 + body.len());
    bytes.push(tag);
    bytes.extend(len_bytes.to_le_bytes());
    bytes.extend(body);
    to.write_all(&bytes)
}

fn unframe(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [tag, len_bytes @ ..] = head;
    let len_bytes = u32::from_le_bytes(len_bytes);
    if len_bytes > BODY_MAX_BYTES {
        return Err(invalid(format!("body of {len_bytes} bytes")));
    }
    let mut body = vec![0; len_bytes as usize];
    from.read_exact(&mut body)?;
    Ok((tag, body))
}

fn json<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(io::Error::from)
}

fn text(body: Vec<u8>) -> io::Result<String> {
    String::from_utf8(body).map_err(|error| invalid(error.to_string()))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use tributary_wire::{Datatype, Operator};

    use super::*;
    use crate::work::{Collective, Step};

    #[test]
    fn messages_round_trip() {
        for message in [
            FromRank::Gather(vec![1, 2, 3]),
            FromRank::Ready("in_tree".into()),
            FromRank::Times(vec![0, u64::MAX]),
            FromRank::Overlap(OverlapTimes { pure_ns: 1, compute_ns: 2, overall_ns: 1 << 40 }),
            FromRank::Finished,
            FromRank::Failed("member 3 is lost".into()),
        ] {
            let mut bytes = Vec::new();
            message.write(&mut bytes).unwrap();
            assert_eq!(FromRank::read(&mut bytes.as_slice()).unwrap(), message);
        }
        let step = Step { size_bytes: 8, warmup: 1, iterations: 2 };
        let work = Work {
            collective: Collective::Allreduce,
            datatype: Datatype::F32,
            operator: Operator::Sum,
            steps: vec![step],
            verify: true,
            overlap: false,
        };
        for message in
            [ToRank::Start(Assignment { rank: 1, ranks: 2, work }), ToRank::Gathered(vec![0; 300])]
        {
            let mut bytes = Vec::new();
            message.write(&mut bytes).unwrap();
            assert_eq!(ToRank::read(&mut bytes.as_slice()).unwrap(), message);
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[9, 0, 0, 0, 0][..], &[3, 1, 0, 0, 0, 7], &[1, 255, 255, 255, 255], &[1, 4]]
        {
            assert!(FromRank::read(&mut &bytes[..]).is_err());
        }
    }
}
