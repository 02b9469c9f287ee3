//! How packets choose among several ways.

use serde::Deserialize;

use super::hop::Vertex;

/// Which of several ways packets take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The target alone decides among shortest paths, as in InfiniBand's forwarding tables.
    #[default]
    Target,
    /// A hash of source and target decides among shortest paths at each switch, as in Ethernet: equal-cost
    /// multi-path (RFC 2992). Flows may collide on a link while another is idle.
    FlowHash,
    /// In a dragonfly: by way of a third group, which a hash of source and target decides (Valiant, "A
    /// scheme for fast parallel communication", 1982; Kim, Dally, Scott and Abts, 2008).
    Valiant,
}

/// The packets from one vertex to another, which take one path and so stay in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where they begin.
    pub from: Vertex,
    /// Where they end.
    pub to: Vertex,
}

impl Flow {
    /// A number below `bound`, even over flows, and independent for each `place`: the mixing steps of
    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    pub(super) fn pick(self, place: u32, bound: u32) -> u32 {
        let mut word = u64::from(self.from.0) << 32 | u64::from(self.to.0);
        word = word.wrapping_add(u64::from(place).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9_u64), (27, 0x94D0_49BB_1331_11EB)] {
            word = (word ^ word >> shift).wrapping_mul(factor);
        }
        word ^= word >> 31;
        // Multiply-shift; the bias is below bound / 2^32.
        (((word >> 32) * u64::from(bound)) >> 32) as u32
    }
}
