//! A length of time as users write it: a whole number and a unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A delay, of one second at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    nanoseconds: u64,
}

/// Why a text is no delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a whole number of ns, us or ms up to 1000ms is allowed, such as 1ms or 250us")]
pub struct ParseDelayError;

const UNITS: [(&str, u64); 3] = [("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
const NANOSECONDS_MAX: u64 = 1_000_000_000;

impl Delay {
    /// Its nanoseconds.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        self.nanoseconds
    }
}

impl FromStr for Delay {
    type Err = ParseDelayError;

    fn from_str(text: &str) -> Result<Self, ParseDelayError> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
            .ok_or(ParseDelayError)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseDelayError);
        }
        let number: u64 = number.parse().map_err(|_| ParseDelayError)?;
        let nanoseconds = number.checked_mul(unit).filter(|length| *length <= NANOSECONDS_MAX);
        Ok(Self { nanoseconds: nanoseconds.ok_or(ParseDelayError)? })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, unit)| self.nanoseconds.is_multiple_of(*unit));
        let (name, unit) = exact.expect("every length is a whole number of ns");
        write!(f, "{}{name}", self.nanoseconds / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_read_and_written_with_their_unit() {
        for (text, nanoseconds, shown) in [
            ("1ms", 1_000_000, "1ms"),
            ("1500us", 1_500_000, "1500us"),
            ("7ns", 7, "7ns"),
            ("2000us", 2_000_000, "2ms"),
        ] {
            let delay: Delay = text.parse().unwrap();
            assert_eq!((delay.nanoseconds(), delay.to_string().as_str()), (nanoseconds, shown));
        }
        for bad in
            ["", "1", "ms", "-1ms", "+1ms", "1.5ms", "1s", "1001ms", "99999999999999999999ns"]
        {
            assert_eq!(bad.parse::<Delay>(), Err(ParseDelayError), "{bad}");
        }
    }
}
