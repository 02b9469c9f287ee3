//! Errors about options and files: one line that names the option, the value and what is allowed, and
//! exit code 2. Knows clap's errors; does not know what options mean.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tributary_client::SettingError;

/// An option or a file that cannot be used. The person who typed it is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}{}: {allowed}", quote(.value))]
pub(crate) struct UsageError {
    /// As it is typed: `--sizes`.
    pub(crate) option: String,
    /// The value that was given; empty if none was.
    pub(crate) value: String,
    /// What is allowed.
    pub(crate) allowed: String,
}

impl UsageError {
    /// An error about `option`, whose `value` is not what is `allowed`.
    pub(crate) fn new(
        option: impl Into<String>,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { option: option.into(), value: value.into(), allowed: allowed.into() }
    }
}

/// A command that is used in a way that can't be meant. The person who typed it is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

fn quote(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" '{value}'") }
}

/// An error about a knob in the environment.
pub(crate) fn from_setting(error: SettingError) -> UsageError {
    let allowed = format!("allowed is {}", error.knob.allowed);
    UsageError::new(error.knob.name, error.value, allowed)
}

/// One line for an error of clap's; `None` for help and version, which are no errors.
pub(crate) fn line_of(error: &clap::Error) -> Option<String> {
    let text = |kind| error.get(kind).map(ToString::to_string);
    let line = match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let option = text(ContextKind::InvalidArg).unwrap_or_default();
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let allowed = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) if !values.is_empty() => {
                    format!("one of {} is allowed", values.join(", "))
                }
                _ => std::error::Error::source(error)
                    .map_or_else(|| "a value is needed".to_owned(), ToString::to_string),
            };
            UsageError::new(option, value, allowed).to_string()
        }
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => unknown_word(error),
        _ => first_paragraph(error),
    };
    Some(line)
}

/// An unknown option or subcommand, and the nearest known one.
fn unknown_word(error: &clap::Error) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string);
    let word = text(ContextKind::InvalidArg)
        .or_else(|| text(ContextKind::InvalidSubcommand))
        .unwrap_or_default();
    let near = text(ContextKind::SuggestedArg).or_else(|| text(ContextKind::SuggestedSubcommand));
    match near {
        Some(near) => format!("'{word}' is unknown; did you mean {near}?"),
        None => format!("'{word}' is unknown; --help lists what is allowed"),
    }
}

/// The complaint that clap wrote, without the usage text below it, on one line.
fn first_paragraph(error: &clap::Error) -> String {
    let rendered = error.to_string();
    let paragraph = rendered.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

/// Reads a whole number between two bounds, for clap's `value_parser`.
pub(crate) fn whole_number(
    range: std::ops::RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            format!("a whole number from {} to {} is allowed", range.start(), range.end())
        })
    }
}

/// Reads a number of at least 0, for clap's `value_parser`.
pub(crate) fn non_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a number of at least 0 is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_number_takes_its_bounds_and_nothing_else() {
        let read = whole_number(1..=64);
        assert_eq!(read("1"), Ok(1));
        assert_eq!(read("64"), Ok(64));
        for bad in ["0", "65", "-1", "4x", "", "1.5"] {
            assert_eq!(read(bad), Err("a whole number from 1 to 64 is allowed".to_owned()));
        }
    }
}
