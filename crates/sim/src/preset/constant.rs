//! One constant: a value with its unit and its source.

use core::marker::PhantomData;

use serde::{Deserialize, Deserializer};

use crate::engine::Picos;

/// A unit that a constant may have.
pub trait Unit {
    /// Its name in a preset file.
    const NAME: &'static str;
}

macro_rules! units {
    ($($(#[$doc:meta])* $unit:ident = $name:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $unit;

            impl Unit for $unit {
                const NAME: &'static str = $name;
            }
        )*
    };
}

units! {
    /// Nanoseconds.
    Nanoseconds = "ns";
    /// Nanoseconds for each byte.
    NsPerByte = "ns/B";
    /// Gigabits a second.
    Gigabits = "Gb/s";
    /// Bytes.
    Bytes = "B";
    /// A count.
    Count = "1";
    /// A fraction of a whole.
    Share = "share";
    /// Per microsecond.
    PerMicrosecond = "1/us";
    /// Per second.
    PerSecond = "1/s";
}

/// A value whose unit was checked, and the source of the value. `limits` checks the value.
#[derive(Clone, Debug)]
pub struct Constant<U> {
    value: f64,
    source: String,
    unit: PhantomData<U>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: f64,
    unit: String,
    source: String,
}

impl<'de, U: Unit> Deserialize<'de> for Constant<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { value, unit, source } = Written::deserialize(deserializer)?;
        let fault = if unit != U::NAME {
            format!("the unit is `{unit}`, it must be `{}`", U::NAME)
        } else if source.trim().is_empty() {
            "a constant needs a source".to_owned()
        } else {
            return Ok(Self { value, source, unit: PhantomData });
        };
        Err(serde::de::Error::custom(fault))
    }
}

impl<U> Constant<U> {
    /// The value, in its unit.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The same, scaled, for what-if simulations.
    #[must_use]
    pub fn scale(&self, factor: f64) -> Self {
        Self { value: self.value * factor, source: self.source.clone(), unit: PhantomData }
    }
}

impl Constant<Nanoseconds> {
    /// As a span of virtual time.
    #[must_use]
    pub fn span(&self) -> Picos {
        Picos::from_ns(self.value)
    }
}

impl Constant<NsPerByte> {
    /// The time for `bytes`.
    #[must_use]
    pub fn span_of(&self, bytes: usize) -> Picos {
        Picos::from_ns(self.value * bytes as f64)
    }
}

impl Constant<Gigabits> {
    /// Picoseconds for one byte.
    #[must_use]
    pub fn byte_ps(&self) -> f64 {
        8e3 / self.value
    }

    /// The time for `bytes`.
    #[must_use]
    pub fn span_of(&self, bytes: usize) -> Picos {
        Picos((self.byte_ps() * bytes as f64) as u64)
    }
}

impl Constant<PerMicrosecond> {
    /// The time between two of them.
    #[must_use]
    pub fn gap(&self) -> Picos {
        Picos::from_ns(1e3 / self.value)
    }
}

impl Constant<Bytes> {
    /// As a length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.value as usize
    }
}

impl Constant<Count> {
    /// As a whole number.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.value as u32
    }
}
