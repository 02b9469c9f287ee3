//! Collectives on hosts with several processes: inside the host, between hosts, inside the host again.

use std::sync::Arc;

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Collective, CollectiveKind, Radices};

use super::host_memory::HostMemory;
use super::operation::{expect_all, sum_in_tree};
use super::tree::PAUSE;
use super::{Samples, choose_algorithm};
use crate::engine::Picos;
use crate::fabric::Vertex;
use crate::preset::Preset;
use crate::system::{System, SystemError, SystemPlan, group_terms};
use crate::world::{
    HostCollective, MemberId, NoPayload, ProcessId, RunError, SetupError, Team, World,
};

/// The inter-host method: how leaders of different hosts combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterHost {
    /// Through the tree, with all leaders in one group.
    Tree {
        /// Whether results also go out by multicast.
        multicast: bool,
    },
    /// By a host algorithm. A single leader gathers socket by socket, as MPI libraries do; several
    /// leaders divide the vector as in [`InterHost::Dpml`].
    HostBased,
    /// By datagrams among the members of replicated groups, in levels of these radices. The single leader of a host gathers
    /// as in [`InterHost::HostBased`].
    Replicated {
        /// They divide the hosts.
        radices: Radices,
        /// Whether members multicast instead of sending a copy to each other.
        multicast: bool,
    },
    /// By a host algorithm on parts of the vector (DPML): the leaders with the same number in their
    /// hosts form a team, and each team reduces its part. With one leader the part is the whole.
    Dpml,
}

/// A benchmark on hosts with several processes.
#[derive(Clone, Debug)]
pub struct FullHosts {
    /// Groups at once, each with processes of its own on every host.
    pub groups: u32,
    /// The number of hosts.
    pub hosts: u32,
    /// Processes on each.
    pub processes: u32,
    /// Leaders on each.
    pub leaders: u32,
    /// The inter-host method.
    pub inter_host: InterHost,
    /// Seed of everything random; none for a run without noise.
    pub seed: Option<u64>,
}

/// The benchmark, set up for any length.
pub struct FullRun {
    setting: FullHosts,
    system: System<NoPayload>,
    memory: HostMemory,
    preset: Preset,
    leaders: Leaders,
}

enum Leaders {
    /// `members[(group * hosts + host) * leaders + leader]`.
    Members(Vec<MemberId>),
    /// Of each group, one team for each leader of a host.
    Teams(Vec<Vec<Team>>),
}

impl FullHosts {
    /// Sets everything up.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn set_up(&self, preset: &Preset) -> Result<FullRun, SystemError> {
        self.set_up_as(preset, SystemPlan::new(preset)?)
    }

    /// The same on a system that was planned for this preset before.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn set_up_as(&self, preset: &Preset, plan: SystemPlan) -> Result<FullRun, SystemError> {
        let mut system = System::from_plan(preset, plan, self.seed.unwrap_or(0), None);
        let hosts = system.compute_hosts();
        let Some(hosts) = hosts.get(..self.hosts as usize) else {
            let (needed, has) = (self.hosts, hosts.len() as u32);
            return Err(SystemError::TooFewHosts { needed, has });
        };
        let hosts = hosts.to_vec();
        if self.seed.is_none() {
            system.world.disable_noise();
        }
        let memory = HostMemory::new(&preset.memory, self.processes);
        let mut setting = self.clone();
        setting.leaders = self.leaders.clamp(1, self.processes);
        let leaders = setting.leaders;
        let places: Vec<_> =
            hosts.into_iter().flat_map(|host| (0..leaders).map(move |_| host)).collect();
        let groups: Vec<Vec<_>> = (0..self.groups.max(1))
            .map(|_| places.iter().map(|&host| (system.world.add_process(host), host)).collect())
            .collect();
        if self.processes * self.groups
            >= preset.memory.sockets.count() * preset.memory.cores.count()
        {
            let leads = groups[0].iter().step_by(leaders as usize);
            leads.for_each(|(process, _)| system.world.share_core(*process));
        }
        let leaders = match self.inter_host {
            InterHost::Tree { multicast } => {
                let terms = group_terms(preset, multicast)?;
                let mut members = Vec::new();
                for processes in &groups {
                    members.extend(system.form(processes, terms)?);
                }
                Leaders::Members(members)
            }
            InterHost::HostBased | InterHost::Dpml | InterHost::Replicated { .. } => {
                let team = |processes: &Vec<(ProcessId, Vertex)>, leader, world: &mut World<_>| {
                    let own = processes.iter().skip(leader).step_by(leaders as usize);
                    let own: Vec<_> = own.map(|(process, _)| *process).collect();
                    world.add_team(&own)
                };
                let teams = groups.iter().map(|processes| {
                    let all = 0..leaders as usize;
                    all.map(|leader| team(processes, leader, &mut system.world)).collect()
                });
                let teams: Vec<Vec<Team>> = teams.collect();
                if let InterHost::Replicated { radices, multicast } = self.inter_host {
                    let plan =
                        Plan::even(self.hosts, radices).expect("the radices divide the hosts");
                    let plan = Arc::new(plan);
                    for of_group in &teams {
                        system.world.add_groups(&of_group[0], &plan, multicast);
                    }
                }
                Leaders::Teams(teams)
            }
        };
        let mut run = FullRun { setting, system, memory, preset: preset.clone(), leaders };
        let is_multicast = matches!(self.inter_host, InterHost::Tree { multicast: true });
        if is_multicast && run.system.world.has_listeners() {
            // With the first result members learn that multicast arrives, and say so.
            run.allreduce(size_of::<u32>(), 1).map_err(SetupError::from)?;
        }
        Ok(run)
    }
}

impl FullRun {
    /// Runs `operations` allreduces of `bytes` bytes; every process's time counts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn allreduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        let mut samples = Samples::default();
        for _ in 0..operations {
            let times = match self.setting.inter_host {
                InterHost::Tree { .. } => self.by_blocks(bytes)?,
                InterHost::HostBased | InterHost::Dpml | InterHost::Replicated { .. } => {
                    self.by_parts(bytes)?
                }
            };
            samples.add(&times);
        }
        Ok(samples)
    }

    /// When each process of each host starts, group by group.
    fn starts(&mut self) -> Vec<Vec<Picos>> {
        let begin = self.system.world.now() + PAUSE;
        let (hosts, processes) = (self.setting.hosts, self.setting.processes);
        (0..hosts * self.setting.groups.max(1))
            .map(|_| (0..processes).map(|_| self.system.world.add_skew(begin)).collect())
            .collect()
    }

    /// Each leader reduces the whole vector of a block of processes.
    fn by_blocks(&mut self, bytes: usize) -> Result<Vec<f64>, RunError> {
        let starts = self.starts();
        let blocks = self.memory.blocks(self.setting.leaders);
        let ready: Vec<Picos> = starts
            .iter()
            .flat_map(|own| blocks.iter().map(|block| self.memory.gather(block, own, bytes)))
            .collect();
        let ended = self.combine_in_tree(&ready, bytes)?;
        let mut times = Vec::new();
        for (host, own) in starts.iter().enumerate() {
            for (index, block) in blocks.iter().enumerate() {
                let from = ended[host * blocks.len() + index];
                times.extend(block.clone().map(|process| {
                    let done_at = self.memory.spread(block, process, from, bytes);
                    done_at.since(own[process as usize]).as_us()
                }));
            }
        }
        Ok(times)
    }

    /// Starts each leader when it is ready. Returns when each has its result.
    fn combine_in_tree(&mut self, ready: &[Picos], bytes: usize) -> Result<Vec<Picos>, RunError> {
        let Leaders::Members(members) = &self.leaders else {
            unreachable!("blocks have leaders in the tree")
        };
        let starts = members.iter().copied().zip(ready.iter().copied());
        let finished = sum_in_tree(&mut self.system.world, starts, bytes)?;
        let mut ended = vec![Picos::ZERO; members.len()];
        let first = members.iter().map(|member| member.0).min().unwrap_or(0);
        let mut place = vec![0; members.len()];
        for (index, member) in members.iter().enumerate() {
            place[(member.0 - first) as usize] = index;
        }
        for done in finished {
            ended[place[(done.member.0 - first) as usize]] = done.ended_at;
        }
        Ok(ended)
    }

    /// Each leader reduces its part of the vector, over all processes of the host.
    fn by_parts(&mut self, bytes: usize) -> Result<Vec<f64>, RunError> {
        let leaders = self.setting.leaders;
        let starts = self.starts();
        // A process alone on its host hands its vector over as it is.
        let is_gathered = self.setting.processes == 1
            || (leaders == 1 && self.setting.inter_host != InterHost::Dpml);
        let whole = 0..self.setting.processes;
        let ready: Vec<Picos> = starts
            .iter()
            .map(|own| {
                if is_gathered {
                    return self.memory.gather(&whole, own, bytes);
                }
                let last = own.iter().copied().max().expect("a host has a process");
                last + self.memory.copy_all(bytes, leaders) + self.memory.reduce_all(bytes, leaders)
            })
            .collect();
        let ended = self.combine_by_hosts(&ready, bytes)?;
        let mut times = Vec::new();
        for (own, &from) in starts.iter().zip(&ended) {
            times.extend(whole.clone().map(|process| {
                let done_at = if is_gathered {
                    self.memory.spread(&whole, process, from, bytes)
                } else {
                    from + self.memory.copy_all(bytes, leaders)
                };
                done_at.since(own[process as usize]).as_us()
            }));
        }
        Ok(times)
    }

    /// Every team reduces its part. Returns when the last leader of each host has its result, group by group.
    fn combine_by_hosts(&mut self, ready: &[Picos], bytes: usize) -> Result<Vec<Picos>, RunError> {
        let Leaders::Teams(teams) = &self.leaders else {
            unreachable!("parts have leaders in teams")
        };
        let part_bytes = bytes.div_ceil(teams[0].len());
        let operation = HostCollective {
            algorithm: choose_algorithm(
                &self.preset,
                CollectiveKind::Allreduce,
                part_bytes,
                self.setting.hosts,
            ),
            collective: Collective::Allreduce,
            elements: part_bytes.div_ceil(4) as u64,
            element_bytes: 4,
        };
        let hosts = self.setting.hosts as usize;
        for (teams, ready) in teams.iter().zip(ready.chunks(hosts)) {
            for team in teams {
                match self.setting.inter_host {
                    InterHost::Replicated { .. } => {
                        self.system.world.enter_groups(team, part_bytes as u32, ready);
                    }
                    _ => self.system.world.enter(team, &operation, ready)?,
                }
            }
        }
        self.system.world.run()?;
        let finished = self.system.world.take_ranks_finished();
        let of_group = hosts * teams[0].len();
        expect_all(finished.len(), of_group * teams.len())?;
        let first = teams[0][0].rank(0).0;
        let mut ended = vec![Picos::ZERO; ready.len()];
        for done in finished {
            let rank = (done.rank.0 - first) as usize;
            let place = rank / of_group * hosts + rank % hosts;
            ended[place] = ended[place].max(done.ended_at);
        }
        Ok(ended)
    }
}
