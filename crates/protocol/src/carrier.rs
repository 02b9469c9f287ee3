//! What carries a frame along an edge.

/// What carries a frame along an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The edge's link: reliable and in order. It carries every edge's joining, leaving and
    /// failing, because the open link is what says that the peer lives; and the data of edges
    /// without datagrams.
    #[default]
    Link,
    /// Datagrams between the same two ends: faster, and may be lost, repeated or reordered.
    Datagram,
    /// Datagrams from a group's root to its multicast address: results only, beside reliable
    /// copies.
    Multicast,
}
