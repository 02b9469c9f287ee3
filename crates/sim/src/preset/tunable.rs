//! A shipped preset of which single constants can be replaced.

use toml::{Table, Value};

use super::error::PresetError;
use super::file::Preset;
use super::{complete, layers, shipped_text};
use crate::input::InputError;

/// How the source of a fitted constant begins. Behind it stands what the constant was fitted to.
const FITTED: &str = "fitted to ";

/// A constant that was chosen to meet a published figure, and not by a data sheet or a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedConstant {
    /// `table.key`.
    pub key: String,
    /// Its value in the preset.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// The observation that it was fitted to.
    pub observation: String,
}

/// The tables of a shipped preset, complete with those of its bases.
#[derive(Clone, Debug)]
pub struct Tunable {
    table: Table,
}

impl Tunable {
    /// The preset of that name.
    ///
    /// # Errors
    /// [`PresetError::Unknown`].
    pub fn read_shipped(name: &str) -> Result<Self, PresetError> {
        Ok(Self { table: layers::merge_layers(shipped_text(name)?, &shipped_text)? })
    }

    /// The constants whose source says that they were fitted.
    #[must_use]
    pub fn fitted_constants(&self) -> Vec<FittedConstant> {
        let tables = self.table.iter().filter_map(|(name, value)| Some((name, value.as_table()?)));
        tables
            .flat_map(|(table, constants)| {
                constants.iter().filter_map(move |(key, constant)| {
                    let text = |key| constant.get(key).and_then(Value::as_str);
                    Some(FittedConstant {
                        key: format!("{table}.{key}"),
                        value: number(constant.get("value")?)?,
                        unit: text("unit")?.to_owned(),
                        observation: text("source")?.strip_prefix(FITTED)?.to_owned(),
                    })
                })
            })
            .collect()
    }

    /// The preset with other values of some constants.
    ///
    /// # Errors
    /// [`PresetError`], also if there is no such constant.
    pub fn with(&self, values: &[(&str, f64)]) -> Result<Preset, PresetError> {
        let mut table = self.table.clone();
        for (key, value) in values {
            let place = key.split_once('.').and_then(|(outer, inner)| {
                table.get_mut(outer)?.get_mut(inner)?.as_table_mut()?.get_mut("value")
            });
            let Some(place) = place else {
                let fault = InputError::Key { key: (*key).to_owned(), fault: "no constant".into() };
                return Err(fault.into());
            };
            *place = Value::Float(*value);
        }
        complete(table)
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_replaced_and_only_that_one() {
        let tunable = Tunable::read_shipped("edr").unwrap();
        let preset = tunable.with(&[("switch.port_to_port", 123.0)]).unwrap();
        assert!((preset.switch.port_to_port.value() - 123.0).abs() < 1e-9);
        let known = crate::preset::read_shipped("edr").unwrap();
        assert!((preset.trunk.rate.value() - known.trunk.rate.value()).abs() < 1e-9);
        assert!(tunable.with(&[("switch.nothing", 1.0)]).is_err());
        assert!(tunable.with(&[("switch.port_rate", 0.0)]).is_err(), "limits hold here, too");
    }

    /// The machine of the published tables; docs/evidence/simulator-accuracy.md says what each is fitted to.
    #[test]
    fn few_constants_are_fitted() {
        let fitted = Tunable::read_shipped("edr-sharp").unwrap().fitted_constants();
        assert!((1..=12).contains(&fitted.len()), "{}: {fitted:?}", fitted.len());
        let mut observations: Vec<_> = fitted.iter().map(|one| &one.observation).collect();
        observations.sort();
        observations.dedup();
        assert_eq!(observations.len(), fitted.len(), "each has an observation of its own");
    }
}
