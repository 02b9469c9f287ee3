//! What there is to choose between where hosts meet: the method, and the host algorithm.

use serde::{Deserialize, Serialize};
use tributary_algorithms::Algorithm;

/// How leaders of different hosts meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Through aggregation nodes.
    Tree,
    /// By a host algorithm over direct links.
    Direct,
}

impl Method {
    /// As knobs and tuning files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Direct => "direct",
        }
    }
}

/// A host algorithm, or the choice of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmChoice {
    /// By collective, hosts and length.
    #[default]
    Auto,
    /// [`Algorithm::RecursiveDoubling`].
    RecursiveDoubling,
    /// [`Algorithm::Rabenseifner`].
    Rabenseifner,
    /// [`Algorithm::Ring`].
    Ring,
    /// [`Algorithm::Binomial`].
    Binomial,
    /// [`Algorithm::Linear`].
    Linear,
}

impl AlgorithmChoice {
    /// Every choice, and its word in knobs and tuning files.
    pub const NAMED: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("recursive-doubling", Self::RecursiveDoubling),
        ("rabenseifner", Self::Rabenseifner),
        ("ring", Self::Ring),
        ("binomial", Self::Binomial),
        ("linear", Self::Linear),
    ];

    /// Every choice.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMED.iter().map(|(_, choice)| *choice)
    }

    /// As the knob and tuning files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, choice)| *choice == self);
        named.expect("the table has every choice").0
    }

    /// The algorithm, unless it is to be chosen.
    #[must_use]
    pub fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            Self::Auto => return None,
            Self::RecursiveDoubling => Algorithm::RecursiveDoubling,
            Self::Rabenseifner => Algorithm::Rabenseifner,
            Self::Ring => Algorithm::Ring,
            Self::Binomial => Algorithm::Binomial,
            Self::Linear => Algorithm::Linear,
        })
    }
}
