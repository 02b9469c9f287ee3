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
    /// The longest message that a sender sends before its receiver has asked for it.
    pub eager_max_bytes: u64,
    /// A core's time for each received byte of a longer message, which no cache has.
    pub cold_ns_per_byte: f64,
}

impl Prices {
    /// A core's time to send a message.
    pub(crate) fn sending_ns(&self, bytes: u64) -> f64 {
        self.send_ns + self.copy_ns_per_byte * bytes as f64
    }

    /// A core's time to receive a message.
    pub(crate) fn receiving_ns(&self, bytes: u64) -> f64 {
        let per_byte =
            if self.is_asked_for(bytes) { self.cold_ns_per_byte } else { self.copy_ns_per_byte };
        self.receive_ns + per_byte * bytes as f64
    }

    /// How long a message's bytes hold a link.
    pub(crate) fn on_link_ns(&self, bytes: u64) -> f64 {
        self.link_ns_per_byte * bytes as f64
    }

    /// Whether a message waits until its receiver has asked for it.
    pub(crate) fn is_asked_for(&self, bytes: u64) -> bool {
        bytes > self.eager_max_bytes
    }

    /// What a receiver and the network take to ask for a message.
    pub(crate) fn asking_ns(&self) -> f64 {
        self.receive_ns + self.send_ns + self.wire_ns
    }
}
