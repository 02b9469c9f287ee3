//! Texts of others, before a person sees them: names from a manager, labels from a report.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tributary_wire::text::{printable, printable_json};

/// A value with all its texts written out.
///
/// # Errors
/// If the value does not come back from what it is written to.
pub(crate) fn printable_of<T: Serialize + DeserializeOwned>(value: &T) -> serde_json::Result<T> {
    serde_json::from_value(printable_value(serde_json::to_value(value)?))
}

fn printable_value(value: Value) -> Value {
    match value {
        Value::String(text) => printable(&text).into(),
        Value::Array(values) => values.into_iter().map(printable_value).collect(),
        Value::Object(fields) => {
            let shown = |(name, value): (String, Value)| {
                (printable(&name).into_owned(), printable_value(value))
            };
            fields.into_iter().map(shown).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// A value as JSON that may be shown on a terminal.
///
/// # Errors
/// If the value has no such form.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(printable_json(&serde_json::to_string(value)?).into_owned())
}

/// Lines of text, each written out.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn texts_and_names_are_written_out_wherever_they_are() {
        let value = BTreeMap::from([("a\x1b".to_owned(), vec![Some("b\nc".to_owned()), None])]);
        let shown = BTreeMap::from([("a\\u{1b}".to_owned(), vec![Some("b\\nc".to_owned()), None])]);
        assert_eq!(printable_of(&value).unwrap(), shown);
        assert_eq!(json(&"\u{9b}\x1b").unwrap(), "\"\\u009b\\u001b\"");
        assert_eq!(printable_lines("a\nb\r\x07"), "a\nb\\r\\u{7}");
    }
}
