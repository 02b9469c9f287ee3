//! Reads JSON values, one a line, from an endless body.

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use serde::de::DeserializeOwned;

/// Longest line: that of an install with some ten thousand children.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Why a stream of lines ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("the stream ended")]
    Ended,
    #[error("the stream broke off: {0}")]
    BrokenOff(String),
    #[error("a line has more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("a line is not what was expected: {0}")]
    Garbled(#[from] serde_json::Error),
}

/// Reads lines.
pub(super) struct Lines<B> {
    body: B,
    buffer: Vec<u8>,
}

impl<B> Lines<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    pub(super) fn new(body: B) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// The next line's value. Cancel-safe: dropping the future loses nothing.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<T, LineError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let value = serde_json::from_slice(&self.buffer[..end]);
                self.buffer.drain(..=end);
                return Ok(value?);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(LineError::TooLong);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(LineError::BrokenOff(error.to_string())),
                None => return Err(LineError::Ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    struct Chunks(VecDeque<&'static [u8]>);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let chunk = self.0.pop_front().map(Bytes::from_static);
            Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
        }
    }

    fn read(chunks: &[&'static [u8]]) -> (Vec<u32>, LineError) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(Chunks(chunks.iter().copied().collect()));
            let mut values = Vec::new();
            loop {
                match lines.next::<u32>().await {
                    Ok(value) => values.push(value),
                    Err(error) => return (values, error),
                }
            }
        })
    }

    #[test]
    fn lines_may_be_cut_anywhere() {
        let (values, error) = read(&[b"1\n2", b"", b"3\n4", b"\n5"]);
        assert_eq!(values, [1, 23, 4]);
        assert!(matches!(error, LineError::Ended));
    }

    #[test]
    fn invalid_lines_are_errors() {
        assert!(matches!(read(&[b"1\nx\n"]), (values, LineError::Garbled(_)) if values == [1]));
        let long: &'static [u8] = vec![b'1'; LINE_BYTES_MAX + 1].leak();
        assert!(matches!(read(&[long]).1, LineError::TooLong));
    }
}
