//! From the text of a knob to its value.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use tributary_algorithms::{GROUP_MEMBERS_MAX, Radices};

use super::choice::Choice;
use super::error::SettingError;
use crate::knobs::Knob;

/// Reads knobs out of an environment.
pub(super) struct Reader<E>(pub(super) E);

impl<E: Fn(&str) -> Option<String>> Reader<E> {
    /// The text, which is empty if there is none.
    pub(super) fn text(&self, knob: &'static Knob) -> String {
        knob.value(&self.0).value
    }

    /// What `read` makes of the text; `None` if there is no text.
    pub(super) fn parse<T>(
        &self,
        knob: &'static Knob,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let value = self.text(knob);
        if value.is_empty() {
            return Ok(None);
        }
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(SettingError::new(knob, value)),
        }
    }

    /// A path, if there is one.
    pub(super) fn path(&self, knob: &'static Knob) -> Option<PathBuf> {
        Some(self.text(knob)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// A number within bounds.
    pub(super) fn number<T: FromStr + PartialOrd>(
        &self,
        knob: &'static Knob,
        allowed: RangeInclusive<T>,
    ) -> Result<T, SettingError> {
        let value = self.text(knob);
        match value.parse() {
            Ok(number) if allowed.contains(&number) => Ok(number),
            _ => Err(SettingError::new(knob, value)),
        }
    }

    /// A number within bounds, or `None` for the word that stands for none.
    pub(super) fn number_unless<T: FromStr + PartialOrd>(
        &self,
        knob: &'static Knob,
        word: &str,
        allowed: RangeInclusive<T>,
    ) -> Result<Option<T>, SettingError> {
        if self.text(knob) == word {
            return Ok(None);
        }
        self.number(knob, allowed).map(Some)
    }

    /// One of a few words.
    pub(super) fn choice<T: Choice>(&self, knob: &'static Knob) -> Result<T, SettingError> {
        let value = self.text(knob);
        T::of_word(&value).ok_or_else(|| SettingError::new(knob, value))
    }
}

/// Members of a group at each level, or none for `auto`.
pub(super) fn groups(text: &str) -> Option<Option<Radices>> {
    if text == "auto" {
        return Some(None);
    }
    let radices: Radices = text.parse().ok()?;
    radices.iter().all(|members| members <= GROUP_MEMBERS_MAX).then_some(Some(radices))
}

/// The name of a socket of this host, as it stands.
pub(super) fn socket(text: &str) -> Option<String> {
    text.starts_with(['/', '@']).then(|| text.to_owned())
}

/// `HOST:PORT`, as it stands.
pub(super) fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| text.to_owned())
}
