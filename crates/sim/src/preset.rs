//! Presets: every constant of a modelled system, with its unit and its source.
//!
//! Owns the files and their format. No other module holds a constant of hardware or software.

mod constant;
mod error;
mod file;
mod layers;
mod limits;
mod tunable;

pub use constant::{
    Bytes, Constant, Count, Gigabits, Nanoseconds, NsPerByte, PerMicrosecond, PerSecond, Share,
    Unit,
};
pub use error::PresetError;
pub use file::{
    Adapter, AggregationNodes, BesideRanks, Bypass, Cable, Datagrams, FabricShape, Library, Loss,
    Machine, Memory, Noise, Packet, Preset, Program, RunsIn, Software, Switch, TreeSoftware,
};

pub use tunable::{FittedConstant, Tunable};

use crate::input::{self, Refused};

/// The presets that come with the program: name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("edr-sharp", include_str!("../presets/edr-sharp.toml")),
    ("edr-leaders", include_str!("../presets/edr-leaders.toml")),
    ("edr", include_str!("../presets/edr.toml")),
    ("hdr-streaming", include_str!("../presets/hdr-streaming.toml")),
    ("omni-path", include_str!("../presets/omni-path.toml")),
    ("many-core", include_str!("../presets/many-core.toml")),
    ("ethernet-10", include_str!("../presets/ethernet-10.toml")),
    ("ethernet-25", include_str!("../presets/ethernet-25.toml")),
    ("lab", include_str!("../presets/lab.toml")),
    ("ethernet-100", include_str!("../presets/ethernet-100.toml")),
    ("dpu", include_str!("../presets/dpu.toml")),
    ("rail", include_str!("../presets/rail.toml")),
    ("cloud", include_str!("../presets/cloud.toml")),
    ("bridge", include_str!("../presets/bridge.toml")),
    ("bluegene-q", include_str!("../presets/bluegene-q.toml")),
    ("aries", include_str!("../presets/aries.toml")),
    ("loggp", include_str!("../presets/loggp.toml")),
];

impl Preset {
    /// The same with aggregation nodes on these hosts, beside their ranks.
    ///
    /// # Errors
    /// [`Refused`], if its aggregators are in switches, or it has none.
    pub fn with_nodes_beside_ranks(mut self, beside: BesideRanks) -> Result<Self, Refused> {
        let Some(nodes) = &mut self.aggregation else {
            let allowed = "a preset with a table `aggregation`";
            return Err(Refused::new("name", format!("`{}`", self.name), allowed));
        };
        nodes.beside_ranks = Some(beside);
        limits::check(&self)?;
        Ok(self)
    }
}

/// Names of the presets that come with the program.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// A preset that comes with the program.
///
/// # Errors
/// [`PresetError::Unknown`]. A test excludes the other errors.
pub fn read_shipped(name: &str) -> Result<Preset, PresetError> {
    read(shipped_text(name)?)
}

/// Reads a preset file. Its `base`, if any, is a shipped preset whose values it may replace.
///
/// # Errors
/// [`PresetError`].
pub fn read(text: &str) -> Result<Preset, PresetError> {
    complete(layers::merge_layers(text, &shipped_text)?)
}

/// The preset of a complete table.
fn complete(table: toml::Table) -> Result<Preset, PresetError> {
    let preset: Preset = input::value(table)?;
    limits::check(&preset)?;
    Ok(preset)
}

/// The file of a preset that comes with the program.
///
/// # Errors
/// [`PresetError::Unknown`].
pub fn text(name: &str) -> Result<&'static str, PresetError> {
    shipped_text(name)
}

fn shipped_text(name: &str) -> Result<&'static str, PresetError> {
    let found = SHIPPED.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| PresetError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_preset_reads() {
        for name in names() {
            let preset = read_shipped(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(preset.name, name);
        }
    }

    #[test]
    fn a_wrong_unit_an_unknown_key_and_a_missing_value_are_refused() {
        let text = shipped_text("edr-sharp").unwrap();
        assert!(read(text).is_ok());
        let error = read(&text.replacen("unit = \"ns\"", "unit = \"us\"", 1)).unwrap_err();
        assert!(error.to_string().contains("`ns`"), "{error}");
        assert!(read(&text.replacen("port_to_port", "port_to_prot", 1)).is_err());
        let child = "name = \"mine\"\nbase = \"edr-sharp\"\n[switch]\nport_to_port = \
                     { value = 300, unit = \"ns\", source = \"a test\" }\n";
        let mine = read(child).unwrap();
        assert_eq!(mine.name, "mine");
        assert!((mine.switch.port_to_port.value() - 300.0).abs() < 1e-9);
        assert!(read("name = \"x\"\nbase = \"nowhere\"\n").is_err());
    }
}
