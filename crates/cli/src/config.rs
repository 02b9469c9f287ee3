//! `tributary config`: the knob table.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use tributary_client::Settings;
use tributary_client::knobs::{self, KnobValue};

use crate::flags::ConfigFlags;
use crate::{tables, usage};

/// Prints every knob, then says which one holds what can't be.
pub(crate) fn config(flags: ConfigFlags) -> anyhow::Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    let values = knobs::values(environment);
    let mut out = io::stdout().lock();
    if flags.json {
        for value in &values {
            writeln!(out, "{}", line(value))?;
        }
    } else {
        writeln!(out, "{}", table(&values))?;
    }
    Settings::from_environment(environment).map_err(usage::from_setting)?;
    Ok(ExitCode::SUCCESS)
}

fn line(KnobValue { knob, value, origin }: &KnobValue) -> serde_json::Value {
    json!({
        "name": knob.name,
        "value": value,
        "unit": knob.unit,
        "source": origin.to_string(),
        "default": knob.default,
        "allowed": knob.allowed,
        "help": knob.help,
    })
}

fn table(values: &[KnobValue]) -> String {
    let mut table = tables::plain(["name", "value", "unit", "source", "help"]);
    for KnobValue { knob, value, origin } in values {
        let shown = if value.is_empty() { "-" } else { value };
        table.add_row([knob.name, shown, knob.unit, &origin.to_string(), knob.help]);
    }
    tables::text(&table)
}
