//! Variables that look like knobs and are none.

use std::ffi::OsString;
use std::fmt;

use crate::knobs::KNOBS;

/// How all knobs begin.
const PREFIX: &str = "TRIBUTARY_";
/// Most variables that are told.
const TOLD_MAX: usize = 8;

/// A variable that is no knob. One line that names the knob that was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misspelt {
    name: String,
    /// None if nothing is like it.
    nearest: Option<&'static str>,
}

impl fmt::Display for Misspelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no knob and has no effect", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; the nearest is {nearest}"),
            None => f.write_str("; tributary config lists all"),
        }
    }
}

/// Those of the variables that begin as knobs do and are none, in their order.
pub fn misspelt(variables: impl Iterator<Item = OsString>) -> Vec<Misspelt> {
    let names = variables.filter_map(|name| name.into_string().ok());
    let unknown =
        names.filter(|name| name.starts_with(PREFIX) && KNOBS.iter().all(|knob| knob.name != name));
    let told = unknown.map(|name| Misspelt { nearest: nearest(&name), name: printable(&name) });
    told.take(TOLD_MAX).collect()
}

/// The knob's name that takes the fewest changes of a letter, if these are less than a third of what follows the prefix.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix(PREFIX)?.to_ascii_uppercase();
    let distances = KNOBS.iter().map(|knob| {
        let own = knob.name.strip_prefix(PREFIX).unwrap_or(knob.name);
        (changes(name.as_bytes(), own.as_bytes()), knob.name)
    });
    let (distance, nearest) = distances.min()?;
    (3 * distance <= name.len() + 1).then_some(nearest)
}

/// Insertions, deletions and replacements of letters that make one name the other (Levenshtein's distance).
fn changes(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != theirs);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// A name that is safe to show: an environment may hold any bytes.
fn printable(name: &str) -> String {
    name.chars()
        .take(64)
        .map(|letter| if letter.is_ascii_graphic() { letter } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &[&str]) -> Vec<String> {
        misspelt(names.iter().map(OsString::from)).iter().map(Misspelt::to_string).collect()
    }

    #[test]
    fn the_nearest_knob_is_named() {
        for (wrong, meant) in [
            ("TRIBUTARY_MANAGR", "TRIBUTARY_MANAGER"),
            ("TRIBUTARY_BETWEENHOSTS", "TRIBUTARY_BETWEEN_HOSTS"),
            ("TRIBUTARY_FABRICS", "TRIBUTARY_FABRIC"),
            ("TRIBUTARY_Reprot", "TRIBUTARY_REPORT"),
            ("TRIBUTARY_HOST", "TRIBUTARY_HOSTS"),
        ] {
            let told = told(&[wrong]);
            assert_eq!(
                told,
                [format!("{wrong} is no knob and has no effect; the nearest is {meant}")]
            );
        }
    }

    #[test]
    fn knobs_and_variables_of_others_are_left_alone() {
        let knobs: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
        assert_eq!(told(&knobs), [""; 0]);
        assert_eq!(told(&["PATH", "TRIBUTARY", "MY_TRIBUTARY_HOST"]), [""; 0]);
        let far = told(&["TRIBUTARY_SOMETHING_OF_MINE\u{7}"]);
        assert_eq!(far.len(), 1);
        assert!(far[0].starts_with("TRIBUTARY_SOMETHING_OF_MINE? is no knob"), "{far:?}");
        assert!(far[0].ends_with("tributary config lists all"), "{far:?}");
        assert_eq!(told(&["TRIBUTARY_XYZ"; 100]).len(), TOLD_MAX);
    }
}
