//! Ranks that run a graph of sends, receives and calculations, as GOAL files have them.
//!
//! A rank has one core, which does one operation after the other: of those that may begin, the one that
//! has waited longest. Receives are posted as soon as they may begin.

use std::collections::BTreeSet;

use crate::engine::Picos;

/// The operations of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// In any order.
    pub nodes: Vec<Node>,
}

/// An operation, and those that wait for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is done.
    pub task: Task,
    /// Operations that begin only when this one is done.
    pub before: Vec<u32>,
    /// Operations that begin only when this one has begun.
    pub ahead_of: Vec<u32>,
}

/// What an operation does. Ranks are numbers in the team.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Occupies the core.
    Calculate(Picos),
    /// Sends a message.
    Send {
        /// To whom.
        to: u32,
        /// Its length.
        bytes: u32,
        /// What the receiver matches.
        tag: u32,
    },
    /// Receives a message.
    Receive {
        /// From whom; from anyone if none.
        from: Option<u32>,
        /// Which; any if none.
        tag: Option<u32>,
    },
}

/// A graph in progress.
#[derive(Debug)]
pub(super) struct GraphRun {
    pub(super) graph: Graph,
    /// For each operation, how many it still waits for.
    pub(super) waits_for: Vec<u32>,
    /// Sends and calculations that may begin, by when they may.
    pub(super) ready: BTreeSet<(Picos, u32)>,
    pub(super) left: usize,
    /// What the core does now; none while it is idle.
    pub(super) doing: Option<u32>,
    pub(super) ended_at: Picos,
}

impl GraphRun {
    pub(super) fn new(graph: Graph) -> Self {
        let mut waits_for = vec![0; graph.nodes.len()];
        for node in &graph.nodes {
            for &next in node.before.iter().chain(&node.ahead_of) {
                waits_for[next as usize] += 1;
            }
        }
        let left = graph.nodes.len();
        Self { graph, waits_for, ready: BTreeSet::new(), left, doing: None, ended_at: Picos::ZERO }
    }
}
