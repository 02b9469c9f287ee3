//! The choices between hosts: the inter-host method, and the host algorithm.

use serde::{Deserialize, Serialize};
use tributary_algorithms::Algorithm;

/// The inter-host method: how leaders of different hosts combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Through aggregation nodes.
    Tree,
    /// By a host algorithm over direct links.
    Direct,
}

impl Method {
    /// Its name in knobs and tuning files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Direct => "direct",
        }
    }
}

/// What carries messages between hosts where they meet without a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageCarrier {
    /// Direct links.
    #[default]
    Links,
    /// Datagrams among the members of replicated groups.
    Datagrams,
}

/// A host algorithm, or the automatic choice of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmChoice {
    /// Chosen by collective, hosts and length.
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
    /// Every choice, with its name in knobs and tuning files.
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

    /// Its name in the knob and in tuning files.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, choice)| *choice == self);
        named.expect("`NAMED` has every choice").0
    }

    /// The algorithm; none if the choice is automatic.
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
