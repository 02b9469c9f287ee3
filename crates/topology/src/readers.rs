//! Readers of topology files: text in, [`Fabric`] out.
//!
//! Every reader refuses what it does not understand, and names the line and what is allowed there:
//! a half-read topology would give wrong trees. `docs/topology.md` describes the formats.

mod error;
mod ibnetdiscover;
mod slurm;
mod tributary;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::fabric::Fabric;

pub use error::{Fault, ReadError};

/// How a topology file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Tributary's own, in TOML.
    Tributary,
    /// The output of `ibnetdiscover` for an InfiniBand fabric.
    Ibnetdiscover,
    /// Slurm's `topology.conf`, tree plug-in.
    Slurm,
}

/// There is no format of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no topology format; formats are tributary, ibnetdiscover and slurm")]
pub struct UnknownFormat(pub String);

/// Reads a topology file.
///
/// # Errors
/// [`ReadError`], with the line.
pub fn read(format: Format, text: &str) -> Result<Fabric, ReadError> {
    match format {
        Format::Tributary => tributary::read(text),
        Format::Ibnetdiscover => ibnetdiscover::read(text),
        Format::Slurm => slurm::read(text),
    }
}

impl Format {
    /// The format that `text` is most likely written in, by the first line that is neither empty
    /// nor a comment.
    #[must_use]
    pub fn detect(text: &str) -> Self {
        let first =
            text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        let begins = |word: &str| {
            first
                .and_then(|line| line.get(..word.len()))
                .is_some_and(|head| head.eq_ignore_ascii_case(word))
        };
        if begins("SwitchName=") || begins("BlockName=") {
            Self::Slurm
        } else if ["vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "Switch\t", "Ca\t"]
            .iter()
            .any(|word| begins(word))
        {
            Self::Ibnetdiscover
        } else {
            Self::Tributary
        }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "tributary" => Ok(Self::Tributary),
            "ibnetdiscover" => Ok(Self::Ibnetdiscover),
            "slurm" => Ok(Self::Slurm),
            _ => Err(UnknownFormat(name.into())),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tributary => "tributary",
            Self::Ibnetdiscover => "ibnetdiscover",
            Self::Slurm => "slurm",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn formats_are_told_apart() {
        assert_eq!(Format::detect("# x\n\nSWITCHNAME=s0 Nodes=n1"), Format::Slurm);
        assert_eq!(Format::detect("#\n# Topology file\n\nvendid=0x2c9\n"), Format::Ibnetdiscover);
        assert_eq!(Format::detect("[[switch]]\nname = 's'"), Format::Tributary);
        assert_eq!(Format::detect(""), Format::Tributary);
        for format in [Format::Tributary, Format::Ibnetdiscover, Format::Slurm] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("yaml".parse::<Format>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_on_a_line_it_has(
            text in "(SwitchName=|Nodes=|Switches=|Switch\t1 |Ca\t1 |\"S-1\"|\"H-1\"|\\[1\\]|#|\"a b\"|[a-c]|\n| |\\[\\[switch\\]\\]\n|name = \"a\"\n){0,24}"
        ) {
            for format in [Format::Tributary, Format::Ibnetdiscover, Format::Slurm] {
                if let Err(error) = read(format, &text) {
                    prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1, "{error}");
                }
            }
        }
    }
}
