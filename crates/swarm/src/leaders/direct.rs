//! Direct links between leaders, and the collectives that run over them.
//!
//! A message arrives once, and in the order of its link; how late is random for each. Collectives go through one
//! leader, as the host library's linear ones: then the bits of a reduction are known. Its other algorithms are
//! tested in `algorithms`.

use tributary_reduce::oracle;
use tributary_wire::frame::Abort;

use super::member_lost;
use crate::agenda::{Item, LeaderId};
use crate::leader::{Collective, How, Kind, Message};
use crate::world::World;

fn combine(how: How, parts: &[&[u8]]) -> Vec<u8> {
    match how {
        How::As(plan) if plan.operator.is_reduction() => {
            oracle::accumulate(plan.operator, plan.datatype, parts)
        }
        How::As(_) => Vec::new(),
        How::Or => {
            let or = |at: usize| parts.iter().fold(0, |so_far, part| so_far | part[at]);
            (0..parts[0].len()).map(or).collect()
        }
    }
}

impl World<'_> {
    /// Sends a message, which takes so much longer.
    pub(super) fn tell_leader(&mut self, from: LeaderId, to: u32, message: Message, after_ns: u64) {
        let delay_ns = self.delay_ns();
        let receiver = LeaderId { number: to, ..from };
        let [here, there] = [from, receiver].map(|id| self.leader(id).host);
        let reaches = self.cut_until(here, there).unwrap_or(self.now);
        let at = reaches.max(self.now + after_ns) + delay_ns;
        let direct = &mut self.communicator(from).direct;
        let wire = &mut direct.wires[from.number as usize * direct.leaders + to as usize];
        wire.1 = wire.1.max(at);
        wire.0.push_back(message);
        let at = wire.1;
        self.trace.note_number(at ^ u64::from(from.number) << 48);
        self.agenda.put(at, Item::Hear { from, to });
    }

    pub(super) fn tell_leaders(&mut self, from: LeaderId, message: &Message) {
        self.tell_leaders_after(from, message, 0);
    }

    pub(super) fn tell_leaders_after(&mut self, from: LeaderId, message: &Message, after_ns: u64) {
        for to in self.leaders_of(from.communicator).filter(|to| *to != from) {
            self.tell_leader(from, to.number, message.clone(), after_ns);
        }
    }

    /// A call of its own to leader 0, which no other message holds up.
    pub(super) fn raise_alarm(&mut self, from: LeaderId, epoch: u32) {
        let first = LeaderId { number: 0, ..from };
        let [here, there] = [from, first].map(|id| self.leader(id).host);
        let at = self.cut_until(here, there).unwrap_or(self.now) + self.delay_ns();
        self.agenda.put(at, Item::Alarm { to: first, epoch });
    }

    /// The next message of a direct link arrives.
    pub(crate) fn hear(&mut self, from: LeaderId, to: u32) {
        let direct = &mut self.communicator(from).direct;
        let wire = &mut direct.wires[from.number as usize * direct.leaders + to as usize].0;
        let message = wire.pop_front().expect("each message has its arrival");
        let is_end = matches!(message, Message::Closed);
        direct.inboxes[to as usize][from.number as usize].push_back(message);
        let to = LeaderId { number: to, ..from };
        // A leader that stands in a tree does not look whether links end that nobody uses.
        if !(is_end && self.leader(to).is_in_tree()) {
            self.on_called(to);
        }
    }

    /// Begins a collective with this leader's part.
    pub(super) fn begin_collective(&mut self, id: LeaderId, kind: Kind, bytes: Vec<u8>) {
        let leaders = self.communicator(id).leaders.len();
        let number = &mut self.communicator(id).direct.begun[id.number as usize];
        *number += 1;
        let collective = Collective { number: *number, kind, bytes, brought: vec![None; leaders] };
        let (number, bytes) = (collective.number, collective.bytes.clone());
        self.leader(id).collective = Some(collective);
        let part = Message::Part { collective: number, bytes };
        match kind {
            Kind::Spread { from } if from == id.number => self.tell_leaders(id, &part),
            Kind::Gather { at, .. } if at != id.number => self.tell_leader(id, at, part, 0),
            Kind::Spread { .. } | Kind::Gather { .. } => {}
        }
    }

    /// Goes on with a collective: its bytes, once it is over here.
    pub(super) fn poll_collective(&mut self, id: LeaderId) -> Result<Option<Vec<u8>>, Abort> {
        let me = id.number;
        let mut collective = self.leader(id).collective.take().expect("one is under way");
        let result = match collective.kind {
            Kind::Spread { from } if from == me => Some(std::mem::take(&mut collective.bytes)),
            Kind::Spread { from } => self.next_part(id, from, collective.number)?,
            Kind::Gather { at, is_for_all, .. } if at != me => match is_for_all {
                true => self.next_part(id, at, collective.number)?,
                false => Some(std::mem::take(&mut collective.bytes)),
            },
            Kind::Gather { how, is_for_all, .. } => {
                for other in self.leaders_of(id.communicator).map(|it| it.number) {
                    if other != me && collective.brought[other as usize].is_none() {
                        collective.brought[other as usize] =
                            self.next_part(id, other, collective.number)?;
                    }
                }
                let parts: Vec<&[u8]> = collective
                    .brought
                    .iter()
                    .enumerate()
                    .filter_map(|(other, part)| match other == me as usize {
                        true => Some(collective.bytes.as_slice()),
                        false => part.as_deref(),
                    })
                    .collect();
                let is_whole = parts.len() == collective.brought.len();
                let result = is_whole.then(|| combine(how, &parts));
                if let Some(bytes) = result.clone().filter(|_| is_for_all) {
                    self.tell_leaders(id, &Message::Part { collective: collective.number, bytes });
                }
                result
            }
        };
        if result.is_none() {
            self.leader(id).collective = Some(collective);
        }
        Ok(result)
    }

    /// The next message from another leader, if it has come.
    fn next_part(
        &mut self,
        id: LeaderId,
        from: u32,
        number: u32,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let inbox = &mut self.communicator(id).direct.inboxes[id.number as usize];
        // A leader that says why it ends is heard before a link that only ends.
        let told = inbox.iter().flatten().find_map(|message| match message {
            Message::Failed(abort) => Some(*abort),
            _ => None,
        });
        match inbox[from as usize].pop_front() {
            Some(Message::Part { collective, bytes }) => {
                assert_eq!(collective, number, "leaders run the same collectives in one order");
                Ok(Some(bytes))
            }
            Some(Message::Failed(abort)) => Err(abort),
            Some(Message::Closed) => Err(told.unwrap_or(member_lost(from))),
            None => told.map_or(Ok(None), Err),
        }
    }
}
