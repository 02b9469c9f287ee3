//! Presets over presets: a file replaces values of its base, and leaves out tables of it.
//!
//! Owns the keys `base` and `without`. Must not know what any other key means.

use toml::{Table, Value};

use super::error::PresetError;
use crate::input::{self, InputError, Refused, one_line};

/// The text of a preset that may be a base.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> Result<&'static str, PresetError>;

/// The tables of a preset file, laid over those of its base, which is complete before: so `without` takes
/// a table away that came from any preset below.
pub(super) fn merge_layers(text: &str, find: Find<'_>) -> Result<Table, PresetError> {
    let mut table = input::table(text)?;
    let base = table.remove("base");
    let without = table.remove("without");
    let Some(base) = base else {
        return match without {
            None => Ok(table),
            Some(_) => Err(key("without", "needs a `base` whose tables it leaves out")),
        };
    };
    let Value::String(base) = base else {
        return Err(Refused::new("base", base, "the name of a preset, in quotes").into());
    };
    let mut below = merge_layers(find(&base)?, find)?;
    for name in names(without)? {
        if !below.get(&name).is_some_and(Value::is_table) {
            let tables: Vec<_> = below.iter().filter(|(_, value)| value.is_table()).collect();
            let tables: Vec<_> = tables.into_iter().map(|(name, _)| name.as_str()).collect();
            let allowed = format!("the tables of `{base}`: {}", tables.join(", "));
            return Err(Refused::new("without", format!("`{name}`"), allowed).into());
        }
        below.remove(&name);
    }
    overlay(&mut below, table);
    Ok(below)
}

/// The entries of `without`.
fn names(without: Option<Value>) -> Result<Vec<String>, PresetError> {
    let allowed = "a list of names of tables, such as [\"aggregation\"]";
    let entries = match without {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(other) => return Err(Refused::new("without", one_line(&other), allowed).into()),
    };
    let name = |entry: Value| match entry {
        Value::String(name) => Ok(name),
        other => Err(Refused::new("without", one_line(&other), allowed).into()),
    };
    entries.into_iter().map(name).collect()
}

/// Replaces values of `below` by those of `above`. Tables merge, except constants and fabrics.
fn overlay(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over))
                if !over.contains_key("value") && !over.contains_key("kind") =>
            {
                overlay(under, over);
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

fn key(key: &str, fault: &str) -> PresetError {
    InputError::Key { key: key.to_owned(), fault: fault.to_owned() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> Result<&'static str, PresetError> {
        match name {
            "lowest" => Ok("[a]\nx = 1\ny = 2\n[b]\nz = 3\n"),
            "middle" => Ok("base = 'lowest'\n[a]\nx = 4\n"),
            "none" => Ok("base = 'middle'\nwithout = ['b']\n"),
            _ => Err(key("base", "unknown")),
        }
    }

    fn text(text: &str) -> Result<String, PresetError> {
        merge_layers(text, &find).map(|table| one_line(table.to_string()))
    }

    #[test]
    fn without_takes_away_what_came_from_any_preset_below() {
        assert_eq!(text("base = 'middle'").unwrap(), "[a] x = 4 y = 2 [b] z = 3");
        assert_eq!(text("base = 'middle'\nwithout = ['b']").unwrap(), "[a] x = 4 y = 2");
        assert_eq!(text("base = 'none'").unwrap(), "[a] x = 4 y = 2");
        assert_eq!(text("base = 'none'\n[b]\nw = 5").unwrap(), "[a] x = 4 y = 2 [b] w = 5");
        assert_eq!(text("base = 'none'\nwithout = ['a']\n[a]\nx = 6").unwrap(), "[a] x = 6");
    }

    #[test]
    fn wrong_entries_are_refused_by_name() {
        let cases = [
            (
                "base = 'middle'\nwithout = ['bb']",
                "`without` is `bb`; allowed: the tables of `middle`: a, b",
            ),
            (
                "base = 'none'\nwithout = ['b']",
                "`without` is `b`; allowed: the tables of `none`: a",
            ),
            (
                "base = 'middle'\nwithout = 'b'",
                "`without` is \"b\"; allowed: a list of names of tables, such as [\"aggregation\"]",
            ),
            (
                "base = 'middle'\nwithout = [1]",
                "`without` is 1; allowed: a list of names of tables, such as [\"aggregation\"]",
            ),
            ("without = ['b']", "`without`: needs a `base` whose tables it leaves out"),
            ("base = 3", "`base` is 3; allowed: the name of a preset, in quotes"),
            ("a = 1\nb = = 2", "line 2: "),
        ];
        for (file, line) in cases {
            let error = text(file).unwrap_err().to_string();
            assert!(error.starts_with(line) && !error.contains('\n'), "{file:?}: {error}");
        }
    }
}
