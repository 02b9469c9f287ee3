//! The manager's process, and what it knows of its conversations with aggregators.

use std::collections::VecDeque;

use tributary_manager::{Manager, ManagerConfig, RequestTicket};
use tributary_protocol_testing::values::mix;
use tributary_wire::control::{NodeEvent, NodeOrder};
use tributary_wire::{Epoch, JobId, NodeId};

use super::fault_record::NUMBERS_PER_LIFE;
use super::scenario::Scenario;

/// The manager's process.
pub(super) struct ManagerHost {
    /// None while it is down.
    pub(super) machine: Option<Manager>,
    /// How often it was restarted.
    pub(super) life: u32,
    pub(super) timer_at: Option<u64>,
    /// Pending decisions: ticket, job, group, attempt.
    pub(super) waiting: Vec<(RequestTicket, u32, u32, u32)>,
}

/// An aggregator's conversation with the manager.
pub(super) struct Session {
    pub(super) node: u32,
    /// The manager's life in which the conversation was opened.
    pub(super) life: u32,
    pub(super) id: NodeId,
    pub(super) orders: VecDeque<NodeOrder>,
    pub(super) events: VecDeque<NodeEvent>,
    pub(super) orders_last_at: u64,
    pub(super) events_last_at: u64,
    pub(super) is_open_at_manager: bool,
}

impl ManagerHost {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let machine = Some(machine(scenario, 0));
        Self { machine, life: 0, timer_at: None, waiting: Vec::new() }
    }
}

/// By which jobs prove their places to the next manager.
pub(super) const PLACE_KEY: [u8; 32] = [0x51; 32];

pub(super) fn machine(scenario: &Scenario, life: u32) -> Manager {
    let mut seed = [0; 32];
    let word = mix(scenario.seed ^ u64::from(life) << 56);
    seed[..8].copy_from_slice(&word.to_le_bytes());
    let config = ManagerConfig {
        first_epoch: Epoch(life * NUMBERS_PER_LIFE + 1),
        first_job: JobId(life * NUMBERS_PER_LIFE),
        ..scenario.manager.clone()
    };
    // All lives of the manager belong to one operator.
    Manager::new(config, scenario.fabric.clone(), seed).with_place_keys(vec![PLACE_KEY])
}
