//! Checks once all is quiet.

use tributary_protocol::Time;

use super::agenda::End;
use super::job::WantState;
use super::verdict::Violation;
use super::world::World;

impl World<'_> {
    /// Liveness: nobody waits for anything, and every job got its groups, or was told that it
    /// cannot have them.
    pub(super) fn check_quiet(&mut self) {
        if self.finding.is_some() {
            return;
        }
        let stuck = self.members.iter().position(|member| !member.is_over());
        if let Some(index) = stuck {
            let member = &self.members[index];
            let (number, completed) = (member.number, member.completed);
            let key = self.runs[member.run as usize].key;
            let group = key.to_string();
            return self.report(Some(key), Violation::Stuck { group, member: number, completed });
        }
        let stuck = self.communicators.iter().find_map(|communicator| {
            let number = communicator.leaders.iter().position(|leader| leader.end.is_none())?;
            Some((
                communicator.key,
                number as u32,
                communicator.leaders[number].completed_operations(),
            ))
        });
        if let Some((key, member, completed)) = stuck {
            let group = key.to_string();
            return self.report(Some(key), Violation::Stuck { group, member, completed });
        }
        for job in 0..self.jobs.len() {
            let entry = &self.jobs[job];
            if entry.is_doomed {
                continue;
            }
            let starved = entry
                .groups
                .iter()
                .position(|want| !matches!(want.state, WantState::Done | WantState::Impossible));
            if let Some(group) = starved {
                let last = entry.groups[group].last_refusal.clone();
                let last = last.unwrap_or_else(|| "its members failed".to_owned());
                return self.report(None, Violation::Starved { job, group, last });
            }
        }
    }

    /// The probe job was served, whatever happened before.
    pub(super) fn check_probe(&mut self) {
        if self.finding.is_some() {
            return;
        }
        let (job, probe) = (self.jobs.len() - 1, self.jobs.last().expect("the probe is a job"));
        if probe.groups[0].state != WantState::Done {
            let last = probe.groups[0].last_refusal.clone().unwrap_or_default();
            self.report(None, Violation::Starved { job, group: 0, last });
        }
    }

    /// Nothing of any group is left anywhere.
    pub(super) fn check_leftovers(&mut self) {
        if self.finding.is_some() {
            return;
        }
        for node in 0..self.nodes.len() {
            if let Some(what) = self.leftover_at(node) {
                let whom = self.scenario.nodes[node].name.clone();
                return self.report(None, Violation::Leftover { whom, what });
            }
        }
        let Some(machine) = &self.manager.machine else {
            return self.report(None, leftover("nothing: it is down"));
        };
        let status = machine.status(Time(0));
        let used = status.nodes.iter().map(|node| node.osos_used).sum::<u32>();
        let (nodes, groups, jobs) = (status.nodes.len(), status.groups.len(), status.jobs.len());
        if nodes != self.nodes.len() {
            self.report(None, leftover(&format!("{nodes} nodes of {}", self.nodes.len())));
        } else if used + groups as u32 + jobs as u32 > 0 {
            let what = format!("{used} outstanding operations, {groups} groups and {jobs} jobs");
            self.report(None, leftover(&what));
        }
    }

    fn leftover_at(&self, node: usize) -> Option<String> {
        let host = &self.nodes[node];
        if !host.is_alive {
            return Some("nothing: it is down".to_owned());
        }
        let osos = host.machine.osos_used();
        if osos > 0 {
            return Some(format!("{osos} outstanding operations"));
        }
        let arenas = host.memory.groups();
        if arenas > 0 {
            return Some(format!("{arenas} arenas"));
        }
        let served = host.groups_in_kernel();
        if served > 0 {
            return Some(format!("{served} places of its kernel path"));
        }
        let waiting = host.machine.streams_waiting();
        if waiting > 0 || !host.locks.is_quiet() {
            return Some(format!("a stream lock, for which {waiting} groups wait"));
        }
        if let Some((link, end)) = host.links().next() {
            let side = if end == End::Lower { "up" } else { "down" };
            return Some(format!("link {link}, which leads {side}"));
        }
        host.machine.poll_timeout().map(|due| format!("a timer due at {}", due.0))
    }
}

fn leftover(what: &str) -> Violation {
    Violation::Leftover { whom: "the manager".to_owned(), what: what.to_owned() }
}
