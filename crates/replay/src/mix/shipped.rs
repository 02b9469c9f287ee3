//! The mixes that come with the program.

use super::file::Mix;
use super::read::read;

/// Name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("hpcg", include_str!("../../mixes/hpcg.toml")),
    ("miniamr", include_str!("../../mixes/miniamr.toml")),
    ("amg", include_str!("../../mixes/amg.toml")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The file of a mix, if there is one of that name.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The mix of that name, if there is one.
///
/// # Panics
/// Never: a test reads them all.
#[must_use]
pub fn read_shipped(name: &str) -> Option<Mix> {
    text(name).map(|text| read(text).expect("a mix of the program is in order"))
}
