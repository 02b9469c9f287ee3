//! What messages between hosts cost.

/// What messages between hosts cost. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Prices {
    /// A core's time to send a message.
    pub send_ns: f64,
    /// A core's time to receive one.
    pub receive_ns: f64,
    /// A core's time for each byte that it sends or receives.
    pub copy_ns_per_byte: f64,
    /// A core's time for each byte that it combines.
    pub reduce_ns_per_byte: f64,
    /// From a core to another host's core, without what cores and bytes take: adapters, cables, switches.
    pub wire_ns: f64,
    /// A link's time for each byte.
    pub link_ns_per_byte: f64,
    /// The longest packet. A switch sends one on while it still comes in.
    pub packet_max_bytes: u64,
    /// The longest frame. A longer message is several, each of which the receiver takes while the next one still comes in.
    pub frame_max_bytes: u64,
}

impl Prices {
    /// A core's time to send a message.
    pub(crate) fn sending_ns(&self, bytes: u64) -> f64 {
        self.send_ns * self.frames(bytes) as f64 + self.copy_ns_per_byte * bytes as f64
    }

    /// A core's time to receive a message.
    pub(crate) fn receiving_ns(&self, bytes: u64) -> f64 {
        self.receive_ns * self.frames(bytes) as f64 + self.copy_ns_per_byte * bytes as f64
    }

    /// How long a message's bytes hold a link.
    pub(crate) fn on_link_ns(&self, bytes: u64) -> f64 {
        self.link_ns_per_byte * bytes as f64
    }

    /// The frames of a message.
    fn frames(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.frame_max_bytes).max(1)
    }

    /// The bytes of a message's first frame.
    pub(crate) fn first_frame_bytes(&self, bytes: u64) -> u64 {
        bytes.min(self.frame_max_bytes)
    }

    /// The bytes of its last one.
    pub(crate) fn last_frame_bytes(&self, bytes: u64) -> u64 {
        bytes - (self.frames(bytes) - 1) * self.frame_max_bytes
    }
}
