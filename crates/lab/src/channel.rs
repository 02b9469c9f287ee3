//! Messages between this crate's processes: one JSON value a line, over Unix sockets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message: an environment and a command line.
const MESSAGE_MAX_BYTES: u64 = 8 << 20;

/// Sends one message.
pub(crate) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The receiving side. It reads ahead, so a socket may have only one.
#[derive(Debug)]
pub(crate) struct Receiver<'a>(BufReader<&'a UnixStream>);

impl<'a> Receiver<'a> {
    pub(crate) fn new(stream: &'a UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Waits for one message; `None` if the other side has closed.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        self.0.by_ref().take(MESSAGE_MAX_BYTES).read_line(&mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_by_one_and_the_end_is_seen() {
        let (near, far) = UnixStream::pair().unwrap();
        send(&near, &vec!["a\nb", "c"]).unwrap();
        send(&near, &7).unwrap();
        drop(near);
        let mut receiver = Receiver::new(&far);
        assert_eq!(receiver.receive::<Vec<String>>().unwrap().unwrap(), ["a\nb", "c"]);
        assert_eq!(receiver.receive::<i32>().unwrap(), Some(7));
        assert_eq!(receiver.receive::<i32>().unwrap(), None);
    }
}
