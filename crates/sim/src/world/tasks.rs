//! How ranks run the graphs of their tasks.

use super::event::Event;
use super::graph::{Graph, GraphRun, Task};
use super::ids::RankId;
use super::payload::Data;
use super::rank::Posted;
use super::rank::{RankFinished, Team};
use super::state::World;
use super::transfer::Label;
use crate::engine::Picos;

impl<D: Data> World<D> {
    /// Lets one rank of a team run a graph from `start` on.
    ///
    /// # Panics
    /// If the graph names an operation that it does not have, or a rank that the team does not have.
    pub fn run_graph(&mut self, team: &Team, number: u32, graph: Graph, start: Picos) {
        let nodes = graph.nodes.len();
        for node in &graph.nodes {
            let mut next = node.before.iter().chain(&node.ahead_of);
            assert!(
                next.all(|&next| (next as usize) < nodes),
                "an operation waits for none of its own"
            );
            if let Task::Send { to: peer, .. } | Task::Receive { from: Some(peer), .. } = node.task
            {
                assert!(peer < team.ranks(), "rank {peer} is not in the team");
            }
        }
        let id = team.rank(number);
        let rank = &mut self.ranks[id.index()];
        rank.graph = Some(Box::new(GraphRun::new(graph)));
        rank.began_at = start;
        self.events.schedule(start, Event::Resume(id));
    }

    /// The rank begins, or its core has done what it did.
    pub(super) fn resume(&mut self, id: RankId) {
        let now = self.events.now();
        let run = self.graph_of(id);
        match run.doing.take() {
            Some(node) => self.core_done(id, node, now),
            None => self.begin_graph(id, now),
        }
        self.pick(id, now);
    }

    fn begin_graph(&mut self, id: RankId, now: Picos) {
        let run = self.graph_of(id);
        let free = (0..).zip(&run.waits_for).filter(|(_, count)| **count == 0);
        let free: Vec<u32> = free.map(|(node, _)| node).collect();
        for node in free {
            let ahead_of = self.may_begin(id, node, now);
            self.release(id, ahead_of, now);
        }
        self.end_graph(id);
    }

    /// The core is done with an operation. A send by rendezvous goes on.
    fn core_done(&mut self, id: RankId, node: u32, now: Picos) {
        let first = self.ranks[id.index()].first.0;
        let is_done = match self.graph_of(id).graph.nodes[node as usize].task {
            Task::Send { to, bytes, .. } => !self.is_rendezvous(id, RankId(first + to), bytes),
            Task::Calculate(_) | Task::Receive { .. } => true,
        };
        if is_done {
            self.finish_node(id, node, now);
        }
    }

    /// The receiver has asked for the message of a rendezvous.
    pub(super) fn finish_rendezvous(&mut self, id: RankId, node: u32, now: Picos) {
        self.finish_node(id, node, now);
        self.pick(id, now);
    }

    /// An operation may begin. Returns what waits for its beginning, if it begins at once.
    fn may_begin(&mut self, id: RankId, node: u32, now: Picos) -> Vec<u32> {
        let first = self.ranks[id.index()].first.0;
        let run = self.graph_of(id);
        match run.graph.nodes[node as usize].task {
            Task::Receive { from, tag } => {
                let from = from.map(|from| RankId(first + from));
                self.ranks[id.index()].posted.push(Posted { from, tag, node });
                self.match_incoming(id, now);
                self.note_begun(id, node)
            }
            Task::Calculate(_) | Task::Send { .. } => {
                run.ready.insert((now, node));
                Vec::new()
            }
        }
    }

    /// An operation has begun. Returns what waited for that.
    pub(super) fn note_begun(&mut self, id: RankId, node: u32) -> Vec<u32> {
        core::mem::take(&mut self.graph_of(id).graph.nodes[node as usize].ahead_of)
    }

    pub(super) fn finish_node(&mut self, id: RankId, node: u32, now: Picos) {
        let run = self.graph_of(id);
        run.left -= 1;
        run.ended_at = run.ended_at.max(now);
        let next = core::mem::take(&mut run.graph.nodes[node as usize].before);
        self.release(id, next, now);
        self.end_graph(id);
    }

    /// Something that these operations wait for has happened.
    fn release(&mut self, id: RankId, mut next: Vec<u32>, now: Picos) {
        next.reverse();
        while let Some(node) = next.pop() {
            let waits_for = &mut self.graph_of(id).waits_for[node as usize];
            *waits_for -= 1;
            if *waits_for == 0 {
                next.extend(self.may_begin(id, node, now));
            }
        }
    }

    /// Gives an idle core its next operation: a message that is here, or what has waited longest.
    pub(super) fn pick(&mut self, id: RankId, now: Picos) {
        let Some(run) = &self.ranks[id.index()].graph else { return };
        if run.doing.is_some() {
            return;
        }
        let first_ready = run.ready.first().copied();
        let here = self.first_message(id);
        let (node, done_at) = match (here, first_ready) {
            (Some((seen_at, place)), ready) if ready.is_none_or(|(at, _)| seen_at <= at) => {
                self.take_message(id, place, now)
            }
            (_, Some((at, node))) => {
                self.graph_of(id).ready.remove(&(at, node));
                (node, self.do_task(id, node, now))
            }
            (None, None) | (Some(_), None) => return,
        };
        self.graph_of(id).doing = Some(node);
        self.events.schedule(done_at, Event::Resume(id));
    }

    /// The message that was here first of those that a receive waits for, by its place in the inbox.
    fn first_message(&self, id: RankId) -> Option<(Picos, usize)> {
        let inbox = self.ranks[id.index()].inbox.iter().enumerate();
        let here = inbox.filter_map(|(place, incoming)| {
            incoming.taken_by.and(incoming.seen_at).map(|seen_at| (seen_at, place))
        });
        here.min()
    }

    fn take_message(&mut self, id: RankId, place: usize, now: Picos) -> (u32, Picos) {
        let incoming = self.ranks[id.index()].inbox.remove(place);
        let cost = self.landing_cost(incoming, false);
        self.end_transfer(incoming.transfer);
        let seen_at = incoming.seen_at.expect("it is here");
        let process = self.ranks[id.index()].process;
        let done_at = self.work(process, seen_at.max(now), cost);
        (incoming.taken_by.expect("a receive waits for it"), done_at)
    }

    fn do_task(&mut self, id: RankId, node: u32, now: Picos) -> Picos {
        let first = self.ranks[id.index()].first.0;
        let process = self.ranks[id.index()].process;
        let done_at = match self.graph_of(id).graph.nodes[node as usize].task {
            Task::Calculate(span) => self.work(process, now, span),
            Task::Send { to, bytes, tag } => {
                let label = Label { tag, node };
                self.send_message(id, RankId(first + to), bytes, label, now)
            }
            Task::Receive { .. } => unreachable!("a receive waits for its message"),
        };
        let ahead_of = self.note_begun(id, node);
        self.release(id, ahead_of, now);
        done_at
    }

    fn end_graph(&mut self, id: RankId) {
        let run = self.graph_of(id);
        if run.left > 0 {
            return;
        }
        let ended_at = run.ended_at;
        let began_at = self.ranks[id.index()].began_at;
        self.ranks[id.index()].graph = None;
        let ended_at = ended_at.max(began_at);
        self.ranks_finished.push(RankFinished { rank: id, began_at, ended_at });
    }

    /// The graph of a rank that runs one.
    fn graph_of(&mut self, id: RankId) -> &mut GraphRun {
        self.ranks[id.index()].graph.as_mut().expect("the rank runs a graph")
    }
}
