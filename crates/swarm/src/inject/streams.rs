//! Faults that hit a group while it has a stream lock or waits for one.

use crate::agenda::Item;
use crate::fault_record::Key;
use crate::scenario::StreamTrouble;
use crate::world::World;

/// Interval between two checks for such a group, and how often it is checked.
const LOOK_NS: u64 = 20_000;
const LOOKS_MAX: u64 = 200;

impl World<'_> {
    /// Waits until a group has a stream lock (or waits for one), and then cuts it short.
    pub(super) fn cut_stream_short(
        &mut self,
        index: u32,
        pick: u32,
        holds: bool,
        how: StreamTrouble,
    ) -> bool {
        let Some((node, run)) = self.pick_stream(pick, holds) else {
            self.look_again(index);
            return false;
        };
        let members = self.runs[run as usize].members.clone();
        let key = self.runs[run as usize].key;
        let living: Vec<u32> = members
            .into_iter()
            .filter(|member| {
                let member = &self.members[*member as usize];
                let link = member.link.map(|link| &self.links[link as usize]);
                !member.is_over() && link.is_some_and(|link| link.is_whole())
            })
            .collect();
        let member = (!living.is_empty()).then(|| living[pick as usize % living.len()]);
        self.trace.note(self.now, Some(key), || format!("node {node}: its stream is cut short"));
        match (how, member) {
            (StreamTrouble::ProcessDies, Some(member)) => self.crash_process(member, false),
            (StreamTrouble::LinkCut, Some(member)) => {
                let link = self.members[member as usize].link.expect("a living member has a link");
                let at = self.now + self.scenario.network.delay_ns_max;
                self.blame_link(link, at);
                self.close(link, crate::agenda::End::Lower);
            }
            (StreamTrouble::Withdrawn, _) => {
                let (job, at) = (self.runs[run as usize].job, self.now);
                self.close_lease(job, at);
            }
            (StreamTrouble::NodeDies { down_ns }, _) => self.crash_node(node, false, down_ns),
            (_, None) => return false,
        }
        true
    }

    /// A fault that waits for its moment looks again soon; in the end it misses.
    pub(super) fn look_again(&mut self, index: u32) {
        let since_ns = self.now - self.scenario.faults[index as usize].at;
        if since_ns < LOOKS_MAX * LOOK_NS {
            self.agenda.put(self.now + LOOK_NS, Item::Fault { index });
        }
    }

    /// An aggregator, and a group that has or awaits a stream lock there.
    fn pick_stream(&self, pick: u32, holds: bool) -> Option<(u32, u32)> {
        let at_node = |(index, host): (usize, &crate::node_host::NodeHost)| -> Vec<(u32, Key)> {
            let epochs = host.locks.groups_concerned().filter(|(_, is_holder)| *is_holder == holds);
            let key = |epoch| host.installed.iter().find(|it| it.key.epoch == epoch);
            epochs.filter_map(|(epoch, _)| key(epoch).map(|it| (index as u32, it.key))).collect()
        };
        let living = self.nodes.iter().enumerate().filter(|(_, host)| host.is_alive);
        let found: Vec<(u32, Key)> = living.flat_map(at_node).collect();
        let (node, key) = *found.get(pick as usize % found.len().max(1))?;
        let run = self.runs.iter().position(|run| run.key == key)?;
        Some((node, run as u32))
    }
}
