//! A rank of a host algorithm over direct links, call by call as `client::mesh` makes them.

use std::collections::VecDeque;

use tributary_algorithms::{
    Action, Algorithm, Collective, Landing, Order, Schedule, Shape, Unsupported,
};

use super::MachineError;
use super::kernel::{Calls, Frame, Program, SocketId, Stretch};
use super::routine::Routine;
use super::tree::Patience;

const ELEMENT_BYTES: u64 = 4;

/// A rank.
pub(super) struct MeshRank {
    rank: u32,
    algorithm: Algorithm,
    routine: Routine,
    /// By peer: where this rank reads.
    inputs: Vec<SocketId>,
    /// By peer: where the peer reads.
    outputs: Vec<SocketId>,
    walk: Option<Schedule>,
    step: Option<Action>,
    unsent: VecDeque<(u32, u32)>,
    has_missed: bool,
    patience: Patience,
}

impl MeshRank {
    pub(super) fn new(
        rank: u32,
        algorithm: Algorithm,
        routine: Routine,
        inputs: Vec<SocketId>,
        outputs: Vec<SocketId>,
        patience: Patience,
    ) -> Self {
        Self {
            rank,
            algorithm,
            routine,
            inputs,
            outputs,
            walk: None,
            step: None,
            unsent: VecDeque::new(),
            has_missed: false,
            patience,
        }
    }

    /// Whether the algorithm, or for a barrier dissemination, has the form.
    pub(super) fn supports(&self, collective: Collective) -> Result<(), Unsupported> {
        self.schedule(collective).map(drop)
    }

    fn schedule(&self, collective: Collective) -> Result<Schedule, Unsupported> {
        let elements = self.routine.elements(collective);
        let ranks = self.inputs.len() as u32;
        let shape = Shape { ranks, elements, order: Order::Any };
        let own = Schedule::new(self.algorithm, collective, shape, self.rank);
        if own.is_ok() || collective != Collective::Barrier {
            return own;
        }
        Schedule::new(Algorithm::Dissemination, collective, shape, self.rank)
    }

    fn next_action(&mut self) {
        self.step = self.walk.as_mut().and_then(Iterator::next).map(|step| step.action);
    }

    fn start(&mut self, calls: &Calls<'_>) -> Result<Stretch, MachineError> {
        let Some(collective) = self.routine.next(calls.now) else { return Ok(Stretch::end()) };
        self.walk = Some(self.schedule(collective)?);
        self.next_action();
        self.patience.reset();
        Ok(Stretch::work(calls.costs.frame))
    }

    /// Sends the first message that is not out yet.
    fn send_on(&mut self, calls: &mut Calls<'_>) -> Option<Stretch> {
        let (to, bytes) = self.unsent.pop_front()?;
        Some(calls.send(self.outputs[to as usize], Frame { header: None, bytes }))
    }

    /// Lands the awaited message, or finds that it is not there.
    fn receive(&mut self, calls: &mut Calls<'_>, from: u32, landing: Landing) -> Stretch {
        let (mut cost, frame) = calls.read(self.inputs[from as usize]);
        match frame {
            Some(frame) => {
                cost += calls.costs.frame;
                if landing != Landing::Store {
                    cost += calls.costs.reduce(frame.bytes);
                }
                self.next_action();
            }
            None => self.has_missed = true,
        }
        Stretch::work(cost)
    }
}

impl Program for MeshRank {
    fn step(&mut self, calls: &mut Calls<'_>) -> Result<Stretch, MachineError> {
        if std::mem::take(&mut self.has_missed) {
            return Ok(self.patience.wait(calls));
        }
        if self.walk.is_none() {
            return self.start(calls);
        }
        loop {
            if let Some(Action::Send { to, span }) = self.step {
                self.unsent.push_back((to, (span.elements * ELEMENT_BYTES) as u32));
                self.next_action();
                continue;
            }
            if let Some(stretch) = self.send_on(calls) {
                return Ok(stretch);
            }
            match self.step {
                Some(Action::Receive { from, landing, .. }) => {
                    return Ok(self.receive(calls, from, landing));
                }
                Some(Action::Fold { span }) => {
                    self.next_action();
                    let bytes = (span.elements * ELEMENT_BYTES) as u32;
                    return Ok(Stretch::work(calls.costs.reduce(bytes)));
                }
                Some(Action::Send { .. }) => {}
                None => {
                    self.walk = None;
                    if let Some(took) = self.routine.finish(calls.now) {
                        calls.note(took);
                    }
                    return self.start(calls);
                }
            }
        }
    }
}
