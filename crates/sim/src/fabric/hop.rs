//! Vertices and links of a fabric, by number.

/// The number of a host or switch; hosts come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex(pub u32);

/// The number of one direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link(pub u32);

/// A link and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link.
    pub link: Link,
    /// Its far end.
    pub to: Vertex,
}
