//! The fabric that `run` and `bench` use: the one that the environment names, or one that they start on
//! this machine for as long as they run.

use std::ffi::OsString;

use anyhow::Context as _;
use tributary_client::knobs::{self, Knob};
use tributary_client::{FabricChoice, Settings, host_addresses};
use tributary_daemon::embedded::{self, FabricOptions};

use crate::flags::TransportFlag;
use crate::usage::UsageError;

/// Knobs for child processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// Sets a knob.
    pub(crate) fn set(&mut self, knob: &'static Knob, value: impl Into<OsString>) {
        self.set_variable(knob.name, value);
    }

    /// Sets a variable that is not a knob.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.push((name, value.into()));
    }

    /// The variables that are set; the last value of a name counts.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }
}

/// A fabric to use. One that we started stops when this is dropped.
pub(crate) enum Fabric {
    /// The one that the environment names, if any.
    Named,
    /// One that we started.
    Own(embedded::Fabric),
}

/// Takes the fabric that `TRIBUTARY_MANAGER` names, or starts one where this machine acts as several hosts. Ranks of
/// one host need none, and ranks of several machines would not reach one that listens on this one alone: they join
/// their hosts themselves. If `transport` is TCP, its aggregators use TCP alone, with each other too.
///
/// # Errors
/// If a knob in the environment has a value that is not allowed, or the fabric does not start.
pub(crate) fn join_or_start(hosts: u32, transport: TransportFlag) -> anyhow::Result<Fabric> {
    let settings = Settings::from_env().map_err(crate::usage::from_setting)?;
    if settings.manager.is_some() || hosts == 1 || settings.fabric == FabricChoice::Off {
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

/// Starts a manager and an aggregator at an address of this host.
///
/// # Errors
/// If a manager is named already, this host has no such address, or they do not start.
pub(crate) fn start_for_job() -> anyhow::Result<Fabric> {
    let settings = Settings::from_env().map_err(crate::usage::from_setting)?;
    if let Some(manager) = &settings.manager {
        let allowed = format!("not with a manager: {} names {manager}", knobs::MANAGER.name);
        return Err(UsageError::new("--aggregator", "", allowed).into());
    }
    let first = || Some(host_addresses(settings.interface.as_ref()).first()?.address);
    let address = settings.host_address.or_else(first);
    let address = address.context("no address that other hosts reach (TRIBUTARY_INTERFACE)")?;
    let ports = settings.ports.map(|ports| ports.from(std::process::id()).collect());
    let fabric = embedded::Fabric::start_for_job(address, ports.unwrap_or_else(|| vec![0]))
        .with_context(|| format!("manager and aggregator did not start at {address}"))?;
    Ok(Fabric::Own(fabric))
}

impl Fabric {
    /// The variables by which child processes find it.
    pub(crate) fn environment(&self) -> Environment {
        let mut environment = Environment::default();
        if let Self::Own(fabric) = self {
            environment.set(&knobs::MANAGER, fabric.manager().to_string());
            environment.set(&knobs::TOKEN_FILE, fabric.token_file());
            environment.set(&knobs::HAND_ON_TOKEN, "on");
        }
        environment
    }
}
