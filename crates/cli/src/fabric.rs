//! The fabric that `run` and `bench` work on: the one the environment names, or one of their own
//! on this machine for as long as they run.

use std::ffi::OsString;

use anyhow::Context as _;
use tributary_client::Settings;
use tributary_client::knobs::{self, Knob};
use tributary_daemon::embedded::{self, FabricOptions};

use crate::flags::TransportFlag;

/// Knobs for child processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// Sets a knob.
    pub(crate) fn set(&mut self, knob: &'static Knob, value: impl Into<OsString>) {
        self.set_variable(knob.name, value);
    }

    /// Sets a variable that is no knob.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    /// The variables that are set, the last one of a name counting.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }
}

/// A fabric to work on; one of our own stops when this is dropped.
pub(crate) enum Fabric {
    /// The one that the environment names, if it does; one host alone needs none.
    Named,
    /// One of our own.
    Own(embedded::Fabric),
}

/// Takes the fabric that `TRIBUTARY_MANAGER` names, or starts one for `hosts` hosts. Its nodes speak
/// over TCP alone if that is the `transport` asked for, among each other too.
///
/// # Errors
/// If a knob in the environment can't be, or our own fabric doesn't start.
pub(crate) fn join_or_start(hosts: u32, transport: TransportFlag) -> anyhow::Result<Fabric> {
    let settings = Settings::from_env().map_err(crate::usage::from_setting)?;
    if settings.manager.is_some() {
        return Ok(Fabric::Named);
    }
    let mut options = FabricOptions { hosts, ..FabricOptions::default() };
    if transport == TransportFlag::Tcp {
        options.shared_memory = false;
        options.datagram_payload_max_bytes = 0;
    }
    let fabric =
        embedded::Fabric::start(&options).context("the fabric on this machine did not start")?;
    Ok(Fabric::Own(fabric))
}

impl Fabric {
    /// What child processes need to know of it.
    pub(crate) fn environment(&self) -> Environment {
        let mut environment = Environment::default();
        if let Self::Own(fabric) = self {
            environment.set(&knobs::MANAGER, fabric.manager().to_string());
            environment.set(&knobs::TOKEN_FILE, fabric.token_file());
        }
        environment
    }
}
