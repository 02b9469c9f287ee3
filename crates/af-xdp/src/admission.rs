//! What tells a receiver's datagrams from others.

/// What a datagram shows to be delivered. A stranger that knows it can forge datagrams: the receiver judges each as if it had
/// come by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where in the datagram the word is.
    pub offset_bytes: u16,
    /// The word.
    pub word: [u8; 8],
}
