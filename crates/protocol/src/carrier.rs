//! What carries a frame along an edge.

/// What carries a frame along an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The edge's link: reliable and in order. It carries every edge's joining, leaving and
    /// failing, because the open link shows that the peer lives. It also carries the data of edges
    /// without datagrams.
    #[default]
    Link,
    /// Datagrams between the same two ends: faster, and may be lost, repeated or reordered.
    Datagram,
    /// Datagrams from a group's root to its multicast address. They carry results only; members
    /// that do not receive them get reliable copies.
    Multicast,
}
