//! A mix in a certain size, as a program.

use tributary_sim::input::Refused;
use tributary_workload::{Call, Communicator, Phase, Script, Workload};

use super::file::{Mix, MixCommunicator, WORLD};
use super::limits;

impl Mix {
    /// The program with so many ranks, in blocks of `per_host` on each host.
    ///
    /// # Errors
    /// [`Refused`]. The key is `ranks`, `processes`, or one of the file.
    pub fn workload(&self, ranks: u32, per_host: u32) -> Result<Workload, Refused> {
        limits::check_size(self, ranks, per_host)?;
        let mut communicators =
            vec![Communicator { name: WORLD.to_owned(), parts: vec![(0..ranks).collect()] }];
        communicators.extend(self.communicator.iter().map(|own| own.divide(ranks)));
        let phases = self.phase.iter().map(|phase| Phase {
            compute: phase.compute,
            call: Call {
                communicator: communicators
                    .iter()
                    .position(|known| known.name == phase.communicator)
                    .expect("the reader knows every communicator"),
                kind: phase.operation,
                root: phase.root,
                bytes: phase.bytes,
            },
            repeat: phase.repeat,
            every: phase.every,
        });
        let scripts = vec![Script { iterations: self.iterations, phases: phases.collect() }];
        Ok(Workload {
            name: self.name.clone(),
            hosts: (0..ranks).map(|rank| rank / per_host).collect(),
            communicators,
            scripts,
            script_of: Vec::new(),
            skew: self.skew,
            imbalance: self.imbalance,
        })
    }
}

impl MixCommunicator {
    pub(super) fn divide(&self, ranks: u32) -> Communicator {
        let parts: Vec<Vec<u32>> = match (self.blocks_of, self.stride) {
            (Some(size), _) => (0..ranks.div_ceil(size))
                .map(|part| (part * size..ranks.min((part + 1) * size)).collect())
                .collect(),
            (None, stride) => {
                let stride = stride.unwrap_or(1).min(ranks);
                (0..stride).map(|first| (first..ranks).step_by(stride as usize).collect()).collect()
            }
        };
        Communicator { name: self.name.clone(), parts }
    }
}
