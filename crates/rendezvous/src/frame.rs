//! What goes over a connection: a hello, then parts to rank 0 and answers from it. Numbers are little-endian.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What a member says first: `MAGIC`, its rank, the job's size, 4 bytes each.
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// "TRV1": the rendezvous' first version.
const MAGIC: u32 = u32::from_le_bytes(*b"TRV1");
/// Longest reason that rank 0 sends.
const REASON_BYTES_MAX: u32 = 4096;

impl Hello {
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (word, value) in bytes.chunks_exact_mut(4).zip([MAGIC, self.rank, self.size]) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// None for somebody else's bytes.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        (word(0) == MAGIC).then(|| Self { rank: word(4), size: word(8) })
    }
}

/// Sends bytes behind their length.
pub(crate) fn send(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("4 GiB at once"))?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(bytes)
}

/// Receives into `bytes`; the length that was announced, if it is another one.
pub(crate) fn receive(mut stream: &TcpStream, bytes: &mut [u8]) -> io::Result<Result<(), u32>> {
    let length = receive_word(stream)?;
    if length as usize != bytes.len() {
        return Ok(Err(length));
    }
    stream.read_exact(bytes)?;
    Ok(Ok(()))
}

/// What rank 0 answers: the bytes of all, or why there are none.
pub(crate) fn answer(mut stream: &TcpStream, outcome: Result<&[u8], &str>) -> io::Result<()> {
    match outcome {
        Ok(bytes) => {
            stream.write_all(&[0])?;
            send(stream, bytes)
        }
        Err(reason) => {
            stream.write_all(&[1])?;
            send(
                stream,
                &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX as usize)],
            )
        }
    }
}

/// Receives rank 0's answer; the reason, if it is one.
pub(crate) fn receive_answer(
    mut stream: &TcpStream,
    bytes: &mut [u8],
) -> io::Result<Result<(), String>> {
    let mut status = [0];
    stream.read_exact(&mut status)?;
    if status == [0] {
        let received = receive(stream, bytes)?;
        let mismatch = |length| format!("rank 0 sent {length} bytes where {} are due", bytes.len());
        return Ok(received.map_err(mismatch));
    }
    let length = receive_word(stream)?.min(REASON_BYTES_MAX);
    let mut reason = vec![0; length as usize];
    stream.read_exact(&mut reason)?;
    Ok(Err(String::from_utf8_lossy(&reason).into_owned()))
}

fn receive_word(mut stream: &TcpStream) -> io::Result<u32> {
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}
