//! Readers of topology files: text in, [`Fabric`] out.
//!
//! Every reader refuses what it does not understand, with the line and what would be allowed
//! there: a topology that was half read would place trees nobody asked for. Formats:
//! `docs/topology.md`.

mod ibnetdiscover;
mod slurm;
mod tributary;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::fabric::{Fabric, FabricError};
use crate::hostlist::HostlistError;

/// How a topology file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Tributary's own, in TOML.
    Tributary,
    /// What `ibnetdiscover` prints of an InfiniBand fabric.
    Ibnetdiscover,
    /// Slurm's `topology.conf`, tree plug-in.
    Slurm,
}

/// No format has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no topology format; formats are tributary, ibnetdiscover and slurm")]
pub struct UnknownFormat(pub String);

/// Why a topology file was refused. Its writer is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a line of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The line is none of those the format has.
    #[error("`{found}` is not understood; allowed: {allowed}")]
    NotUnderstood {
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// The TOML parser refused it, or a key or value is not one the format has.
    #[error("{0}")]
    Toml(String),
    /// A host list is malformed.
    #[error(transparent)]
    Hostlist(#[from] HostlistError),
    /// The line contradicts an earlier one.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A name is used that no line describes.
    #[error("`{name}` is not described anywhere in the file; allowed: {allowed}")]
    Undescribed {
        /// The name.
        name: String,
        /// What it may name.
        allowed: &'static str,
    },
    /// The file describes nothing.
    #[error("the file describes no switch; allowed: {allowed}")]
    Nothing {
        /// What a file of the format holds.
        allowed: &'static str,
    },
}

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

impl ReadError {
    fn at(line: usize, fault: impl Into<Fault>) -> Self {
        Self { line, fault: fault.into() }
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
