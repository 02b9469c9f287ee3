//! A lab's network: its shape, and what every link does to packets.
//!
//! Values only; `plan` derives members and links from them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::delay::Delay;

/// Most hosts of a lab. Each is a few processes on this machine.
pub const HOSTS_MAX: u32 = 64;

/// Where the aggregation nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePlacement {
    /// Beside every switch, on a link of their own.
    All,
    /// Beside the spine only; without a spine, beside the only leaf.
    Spine,
    /// In every switch, at its ports.
    Inside,
}

/// A two-level fat tree: hosts on leaf switches, leaves on one spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    hosts: u32,
    hosts_per_leaf: u32,
    nodes: NodePlacement,
}

/// Why a shape is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No hosts, or too many.
    #[error("{hosts} hosts: 1 to {HOSTS_MAX} are allowed")]
    Hosts {
        /// How many were asked for.
        hosts: u32,
    },
    /// Leaves without hosts.
    #[error("a leaf needs at least one host")]
    EmptyLeaf,
}

impl Shape {
    /// `hosts` hosts in blocks of `hosts_per_leaf`; the last leaf takes the rest. With one leaf
    /// there is no spine.
    ///
    /// # Errors
    /// If either number is out of bounds.
    pub fn new(hosts: u32, hosts_per_leaf: u32, nodes: NodePlacement) -> Result<Self, ShapeError> {
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(ShapeError::Hosts { hosts });
        }
        if hosts_per_leaf == 0 {
            return Err(ShapeError::EmptyLeaf);
        }
        Ok(Self { hosts, hosts_per_leaf, nodes })
    }

    /// Hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Leaf switches.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.hosts.div_ceil(self.hosts_per_leaf)
    }

    /// The leaf that a host is on.
    #[must_use]
    pub fn leaf_of(&self, host: u32) -> u32 {
        host / self.hosts_per_leaf
    }

    /// Where the aggregation nodes are.
    #[must_use]
    pub fn nodes(&self) -> NodePlacement {
        self.nodes
    }
}

/// What every link does to packets, independently in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkOptions {
    /// Its rate; `None` for as fast as the machine can.
    pub rate: Option<Rate>,
    /// The share of packets it loses.
    pub loss: Loss,
    /// TCP's minimum retransmission timeout in milliseconds; `None` for the kernel's 200.
    pub tcp_rto_min_ms: Option<u32>,
    /// Whether it drops multicast packets, as many networks do.
    #[serde(default)]
    pub blocks_multicast: bool,
    /// Whether it carries packets one by one, like a wire. Otherwise a sender passes up to 64 KiB
    /// as one packet (GSO), which is lost as a whole.
    #[serde(default)]
    pub has_single_packets: bool,
    /// How long a frame takes from one member of a switch to another; `None` for as long as the kernel takes.
    #[serde(default)]
    pub delay: Option<Delay>,
    /// How much longer a frame takes across the spine.
    #[serde(default)]
    pub spine_delay: Delay,
    /// How much longer a frame takes at most, at random.
    #[serde(default)]
    pub jitter: Delay,
}

impl LinkOptions {
    /// Whether frames are held, so that a switch in user space carries them.
    #[must_use]
    pub fn has_delay(&self) -> bool {
        self.delay.is_some()
    }
}

/// A link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    bits_per_s: u64,
}

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate from 1mbit to 400gbit is allowed, such as 100mbit or 10gbit")]
pub struct ParseRateError;

const RATE_UNITS: [(&str, u64); 3] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
const RATE_BITS_PER_S: std::ops::RangeInclusive<u64> = 1_000_000..=400_000_000_000;

impl Rate {
    /// Bits per second.
    #[must_use]
    pub fn bits_per_s(self) -> u64 {
        self.bits_per_s
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let text = text.to_ascii_lowercase();
        let (number, unit) = RATE_UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .ok_or(ParseRateError)?;
        let number: u64 = number.parse().map_err(|_| ParseRateError)?;
        let bits_per_s = number.checked_mul(unit).ok_or(ParseRateError)?;
        if !RATE_BITS_PER_S.contains(&bits_per_s) {
            return Err(ParseRateError);
        }
        Ok(Self { bits_per_s })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = RATE_UNITS.iter().find(|(_, unit)| self.bits_per_s.is_multiple_of(*unit));
        match exact {
            Some((name, unit)) => write!(f, "{}{name}", self.bits_per_s / unit),
            None => write!(f, "{}bit", self.bits_per_s),
        }
    }
}

/// The share of packets that a link loses, in parts of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    parts_per_million: u32,
}

/// Why a text is no loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a percentage from 0 to 50 with at most four decimals is allowed, such as 0.5")]
pub struct ParseLossError;

/// With more loss not even control traffic gets through.
const LOSS_MAX_PPM: u32 = 500_000;
const PPM_PER_PERCENT: u32 = 10_000;

impl Loss {
    /// Parts of a million.
    #[must_use]
    pub fn parts_per_million(self) -> u32 {
        self.parts_per_million
    }

    /// Whether nothing is lost.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.parts_per_million == 0
    }
}

impl FromStr for Loss {
    type Err = ParseLossError;

    /// Reads a percentage. In decimal, so that 0.1 is exact.
    fn from_str(text: &str) -> Result<Self, ParseLossError> {
        let text = text.strip_suffix('%').unwrap_or(text);
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if decimals.is_empty() || decimals.len() > 4 || !is_digits(whole) || !is_digits(decimals) {
            return Err(ParseLossError);
        }
        let whole: u32 = whole.parse().map_err(|_| ParseLossError)?;
        let decimals: u32 = format!("{decimals:0<4}").parse().map_err(|_| ParseLossError)?;
        let parts_per_million = whole
            .checked_mul(PPM_PER_PERCENT)
            .and_then(|parts| parts.checked_add(decimals))
            .filter(|parts| *parts <= LOSS_MAX_PPM)
            .ok_or(ParseLossError)?;
        Ok(Self { parts_per_million })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.parts_per_million % PPM_PER_PERCENT);
        let decimals = decimals.trim_end_matches('0');
        let point = if decimals.is_empty() { "" } else { "." };
        write!(f, "{}{point}{decimals}%", self.parts_per_million / PPM_PER_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_deal_hosts_to_leaves_in_blocks() {
        let shape = Shape::new(9, 4, NodePlacement::All).unwrap();
        assert_eq!(shape.leaves(), 3);
        assert_eq!(
            (0..9).map(|host| shape.leaf_of(host)).collect::<Vec<_>>(),
            [0, 0, 0, 0, 1, 1, 1, 1, 2]
        );
        assert_eq!(Shape::new(8, 8, NodePlacement::All).unwrap().leaves(), 1);
        assert_eq!(Shape::new(0, 4, NodePlacement::All), Err(ShapeError::Hosts { hosts: 0 }));
        assert_eq!(Shape::new(65, 4, NodePlacement::All), Err(ShapeError::Hosts { hosts: 65 }));
        assert_eq!(Shape::new(4, 0, NodePlacement::All), Err(ShapeError::EmptyLeaf));
    }

    #[test]
    fn rates_are_read_and_written_as_tc_does() {
        for (text, bits_per_s) in
            [("1mbit", 1_000_000), ("2500kbit", 2_500_000), ("10Gbit", 10_000_000_000)]
        {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_s(), bits_per_s);
        }
        assert_eq!("2500kbit".parse::<Rate>().unwrap().to_string(), "2500kbit");
        assert_eq!("10000mbit".parse::<Rate>().unwrap().to_string(), "10gbit");
        for bad in ["", "10", "gbit", "-1gbit", "1.5gbit", "999kbit", "401gbit", "1e3mbit"] {
            assert_eq!(bad.parse::<Rate>(), Err(ParseRateError), "{bad}");
        }
    }

    #[test]
    fn losses_are_exact_percentages() {
        for (text, parts, shown) in [
            ("0", 0, "0%"),
            ("0.5", 5_000, "0.5%"),
            ("1%", 10_000, "1%"),
            ("0.0001", 1, "0.0001%"),
            ("50", 500_000, "50%"),
        ] {
            let loss: Loss = text.parse().unwrap();
            assert_eq!((loss.parts_per_million(), loss.to_string().as_str()), (parts, shown));
        }
        for bad in ["", "-1", "50.1", "0.00001", "1.", ".5", "one", "99999999999"] {
            assert_eq!(bad.parse::<Loss>(), Err(ParseLossError), "{bad}");
        }
    }
}
