//! What carries the contributions of a level from host to host, and what it costs.

use crate::plan::Plan;
use crate::prices::Prices;

/// The most members of a replicated group. Each takes a datagram of every other, of two operations at most: what a socket's buffer
/// holds by the system's default.
pub const GROUP_MEMBERS_MAX: u32 = 32;

/// The longest vector that replicated groups carry: with the contribution of the operation before, one packet of plain Ethernet.
/// Longer datagrams are fragmented, and lost with any of their fragments.
pub const GROUP_BYTES_MAX: u64 = 1024;

/// What carries contributions. It never decides an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carrier {
    /// TCP links: each message is sent and received by itself.
    Links,
    /// A datagram for each receiver, all of them sent by one call and received in batches.
    Copies(DatagramPrices),
    /// One datagram that the switches copy.
    Multicast(DatagramPrices),
}

/// What datagrams cost beside [`Prices`]. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DatagramPrices {
    /// A core's time for each further copy that the same call sends.
    pub further_send_ns: f64,
    /// A core's time for each datagram of a batch that it receives, beside the call.
    pub each_receive_ns: f64,
    /// The longest contribution.
    pub payload_max_bytes: u64,
}

impl Carrier {
    /// Whether it carries contributions of so many bytes.
    pub(crate) fn carries(&self, bytes: u64) -> bool {
        match self {
            Self::Links => true,
            Self::Copies(datagrams) | Self::Multicast(datagrams) => {
                bytes <= datagrams.payload_max_bytes
            }
        }
    }

    /// A core's time to send a message of a round, of which it has sent the same bytes already or not, and whether
    /// they take the link again.
    pub(crate) fn sending(&self, prices: &Prices, bytes: u64, sent: Sent) -> (f64, bool) {
        let whole = (prices.sending_ns(bytes), true);
        let copied = prices.copy_ns_per_byte * bytes as f64;
        match (self, sent) {
            (Self::Links, _) | (_, Sent::Nothing) => whole,
            (Self::Multicast(_), Sent::Same) => (0.0, false),
            (Self::Copies(datagrams) | Self::Multicast(datagrams), _) => {
                (datagrams.further_send_ns + copied, true)
            }
        }
    }

    /// A core's time for the datagrams of a plan's groups that its schedule does without. Links carry the schedule alone.
    pub(crate) fn spare_ns(&self, plan: &Plan) -> f64 {
        let (Self::Copies(datagrams) | Self::Multicast(datagrams)) = self else { return 0.0 };
        let of_level = |level| {
            let (sent, received) = plan.spare_datagrams(level);
            sent * datagrams.further_send_ns + received * datagrams.each_receive_ns
        };
        (0..plan.levels()).map(of_level).sum()
    }

    /// A core's time to receive a message, the first one of a round or a further one.
    pub(crate) fn receiving_ns(&self, prices: &Prices, bytes: u64, is_first: bool) -> f64 {
        match self {
            Self::Links => prices.receiving_ns(bytes),
            Self::Copies(datagrams) | Self::Multicast(datagrams) => {
                let call_ns = if is_first { prices.receive_ns } else { 0.0 };
                call_ns + datagrams.each_receive_ns + prices.copy_ns_per_byte * bytes as f64
            }
        }
    }
}

/// What a rank has sent of a round so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing.
    Nothing,
    /// Other elements.
    Other,
    /// The same elements.
    Same,
}
