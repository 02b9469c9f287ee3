//! What was published about the machine, in numbers, each with its simulation.

use crate::communicators;
use crate::full_hosts::{self, setting};
use crate::published;
use crate::sweep::{Effort, FigureError};
use crate::tables::{self, Mode};
use tributary_sim::measure::InterHost;
use tributary_sim::preset::Preset;

const IN_TREE: InterHost = InterHost::Tree { multicast: true };

/// A published number: a latency in microseconds, or the quotient of two latencies.
pub(super) struct Observation {
    pub(super) name: String,
    pub(super) published: f64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A row of table 1: 127 hosts.
    Table1(Mode, usize),
    /// A row of table 2: length, outstanding operations of the job and of one communicator,
    /// communicators.
    Table2(usize, u32, u16, u32),
    /// Multicast and reliable results against reliable ones only: 8 B, 128 hosts.
    Multicast,
    /// A channel for each socket against one for each host: 8 B, 128 hosts of 28 processes.
    Channels,
    /// 16 communicators against one: 64 B, 128 hosts.
    Communicators,
    /// Hosts alone, 4 KiB on 128 hosts. What the tree took in the same test is left out: its outstanding
    /// operations are not published, and they decide it.
    LongOnHosts,
}

/// Every observation.
pub(super) fn observations() -> Vec<Observation> {
    let mut all = Vec::new();
    for (mode, size) in [
        (Mode::Host, 8),
        (Mode::Host, 256),
        (Mode::Host, 512),
        (Mode::Host, 1024),
        (Mode::Sharp, 8),
        (Mode::Sharp, 256),
        (Mode::Sharp, 2048),
    ] {
        let published = published::table1(mode.name(), size).expect("table 1 has this row");
        let name = format!("table 1, {}, {size} B", mode.name());
        all.push(Observation { name, published, kind: Kind::Table1(mode, size) });
    }
    for (size, total, each, comms) in
        [(8, 16, 1, 1), (2048, 64, 4, 1), (2048, 64, 4, 4), (2048, 128, 8, 1), (2048, 128, 8, 8)]
    {
        let published = published::table2(size, total, each, comms).expect("table 2 has this row");
        let name = format!("table 2, {size} B, {total}/{each}, {comms} communicators");
        all.push(Observation { name, published, kind: Kind::Table2(size, total, each, comms) });
    }
    let statements = [
        ("S1, quotient", 1.0 - 0.16, Kind::Multicast),
        ("S2, quotient", 1.0 - 0.17, Kind::Channels),
        ("S3, quotient", 1.0 + 0.30, Kind::Communicators),
        ("S5, hosts", 46.9, Kind::LongOnHosts),
    ];
    all.extend(statements.map(|(name, published, kind)| Observation {
        name: name.into(),
        published,
        kind,
    }));
    all
}

impl Observation {
    /// The simulated value.
    ///
    /// # Errors
    /// [`FigureError`].
    pub(super) fn simulate(&self, preset: &Preset, effort: &Effort) -> Result<f64, FigureError> {
        let table1 = |mode, hosts, size| {
            Ok::<_, FigureError>(tables::measure(preset, mode, hosts, size, effort)?.avg)
        };
        match self.kind {
            Kind::Table1(mode, size) => table1(mode, 127, size),
            Kind::Table2(size, total, each, comms) => {
                let mean = tables::measure_grant(preset, size, total, each, comms, effort)?;
                Ok(mean.expect("the published grants fit"))
            }
            Kind::Multicast => {
                Ok(table1(Mode::Sharp, 128, 8)? / table1(Mode::SharpReliable, 128, 8)?)
            }
            Kind::Channels => {
                let us = |leaders| {
                    let setting = setting(128, 28, leaders, IN_TREE, effort);
                    full_hosts::measure(preset, &setting, 8, effort.operations)
                };
                Ok(us(2)? / us(1)?)
            }
            Kind::Communicators => {
                let us = |count| communicators::measure(preset, count, 64, effort);
                Ok(us(16)? / us(1)?)
            }
            Kind::LongOnHosts => table1(Mode::Host, 128, 4096),
        }
    }
}
