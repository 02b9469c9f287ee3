//! A rank that is an endpoint of the tree, call by call as `client::tree` makes them.

use tributary_protocol::endpoint::{Endpoint, Event};
use tributary_protocol::{Carrier, Time};

use super::MachineError;
use super::kernel::{Calls, Frame, Program, SocketId, Stretch};
use super::routine::Routine;
use crate::engine::Picos;

/// Times that a wait gives way before it sleeps, as in `shm_collectives::waiting`.
const YIELDS: u32 = 64;

/// Nodes that ranks count among those they share their cores with, as in `client::context`.
const EMBEDDED_NODES: usize = 3;

/// How a rank waits. With a core for everyone it looks again and again; where cores are short it gives
/// way, and in the end it sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    spins: bool,
    waits: u32,
}

impl Patience {
    /// For so many ranks on so many cores.
    pub(super) fn new(ranks: usize, cores: usize) -> Self {
        Self { spins: ranks + EMBEDDED_NODES <= cores, waits: 0 }
    }

    /// A new wait begins.
    pub(super) fn reset(&mut self) {
        self.waits = 0;
    }

    pub(super) fn wait(&mut self, calls: &Calls<'_>) -> Stretch {
        self.waits += 1;
        if self.spins {
            Stretch::work(Picos::ZERO)
        } else if self.waits <= YIELDS {
            Stretch::give_way(calls.costs.give_way)
        } else {
            // Before it sleeps, it looks twice whether it should (`transport::wait`).
            Stretch::sleep(calls.costs.wait + calls.costs.miss + calls.costs.miss)
        }
    }
}

/// A rank.
pub(super) struct TreeRank {
    endpoint: Endpoint,
    routine: Routine,
    input: SocketId,
    output: SocketId,
    phase: Phase,
    patience: Patience,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Start,
    Receive,
    Transmit,
    Look,
}

impl TreeRank {
    pub(super) fn new(
        endpoint: Endpoint,
        routine: Routine,
        input: SocketId,
        output: SocketId,
        patience: Patience,
    ) -> Self {
        Self { endpoint, routine, input, output, phase: Phase::Start, patience }
    }

    fn start(&mut self, calls: &Calls<'_>) -> Result<Stretch, MachineError> {
        let Some(collective) = self.routine.next(calls.now) else { return Ok(Stretch::end()) };
        let spec = self.routine.spec(collective);
        self.endpoint.start(spec).map_err(MachineError::Start)?;
        self.patience.reset();
        self.phase = Phase::Receive;
        Ok(Stretch::work(calls.costs.frame))
    }

    /// Takes a frame from the link, until there is none.
    fn receive(&mut self, calls: &mut Calls<'_>) -> Result<Stretch, MachineError> {
        let (mut cost, frame) = calls.read(self.input);
        match frame.and_then(|frame| frame.header) {
            Some(header) => {
                cost += calls.costs.frame;
                self.endpoint
                    .handle_frame(protocol_time(calls.now), Carrier::Link, &header)
                    .map_err(MachineError::Member)?;
            }
            None => self.phase = Phase::Transmit,
        }
        Ok(Stretch::work(cost))
    }

    fn transmit(&mut self, calls: &mut Calls<'_>) -> Option<Stretch> {
        let header = self.endpoint.peek_transmit()?.header;
        self.endpoint.pop_transmit(protocol_time(calls.now));
        let bytes = header.payload_bytes() as u32;
        Some(calls.send(self.output, Frame { header: Some(header), bytes }))
    }
}

impl Program for TreeRank {
    fn step(&mut self, calls: &mut Calls<'_>) -> Result<Stretch, MachineError> {
        loop {
            match self.phase {
                Phase::Start => return self.start(calls),
                Phase::Receive => return self.receive(calls),
                Phase::Transmit => match self.transmit(calls) {
                    Some(stretch) => return Ok(stretch),
                    None => self.phase = Phase::Look,
                },
                Phase::Look => {
                    let mut is_over = false;
                    while let Some(event) = self.endpoint.poll_event() {
                        is_over |= matches!(event, Event::Completed(_));
                    }
                    if !is_over {
                        self.phase = Phase::Receive;
                        return Ok(self.patience.wait(calls));
                    }
                    if let Some(took) = self.routine.finish(calls.now) {
                        calls.note(took);
                    }
                    self.phase = Phase::Start;
                }
            }
        }
    }
}

/// The time as the protocol's machines count it.
pub(super) fn protocol_time(now: Picos) -> Time {
    Time(now.0 / 1000)
}
