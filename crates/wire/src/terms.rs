//! What a group is granted for streams.

/// A group's terms for streams, the same at all of its aggregators and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamTerms {
    /// Longest chunk, in bytes.
    pub chunk_bytes: u32,
    /// Chunks in flight at most.
    pub window: u16,
}
