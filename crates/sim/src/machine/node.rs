//! An aggregation node's data thread, call by call as `daemon::node` makes them.

use std::collections::VecDeque;

use tributary_protocol::Carrier;
use tributary_protocol::node::{Node, PortId};
use tributary_wire::frame::Message;

use super::MachineError;
use super::kernel::{Calls, Frame, Program, SocketId, Stretch};
use super::tree::protocol_time;
use crate::world::{Data, Nothing};

/// With as many links as this, or fewer, the thread asks each instead of asking the kernel which of them
/// have something, until none has (`daemon::node::data`).
const DIRECT_LINKS_MAX: usize = 2;

/// A port: where it reads, and where what it sends is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePort {
    pub(super) input: SocketId,
    pub(super) output: SocketId,
}

/// The thread. It shares its cores with ranks, so it doesn't poll: it sleeps at once.
pub(super) struct NodeTask {
    machine: Node,
    arenas: Nothing,
    ports: Vec<NodePort>,
    /// Ports that the kernel said have something, in the order of their numbers.
    hot: VecDeque<usize>,
    /// The port that the machine sends from now.
    sending: Option<PortId>,
    is_drained: bool,
    has_slept: bool,
    /// The round over the links has found a frame.
    has_worked: bool,
}

impl NodeTask {
    pub(super) fn new(machine: Node, arenas: Nothing, ports: Vec<NodePort>) -> Self {
        let hot = VecDeque::new();
        Self {
            machine,
            arenas,
            ports,
            hot,
            sending: None,
            is_drained: true,
            has_slept: true,
            has_worked: false,
        }
    }

    /// Asks the kernel which links have something, and sleeps until one has.
    fn wait(&mut self, calls: &Calls<'_>) -> Option<Stretch> {
        let asks_each = self.ports.len() <= DIRECT_LINKS_MAX;
        if std::mem::take(&mut self.has_worked) && asks_each {
            self.hot = (0..self.ports.len()).collect();
            return None;
        }
        let ports = self.ports.iter().enumerate();
        let hot = ports.filter(|(_, port)| calls.has_input(port.input)).map(|(index, _)| index);
        self.hot = hot.collect();
        let was_asleep = std::mem::take(&mut self.has_slept);
        if asks_each && !self.hot.is_empty() {
            self.hot = (0..self.ports.len()).collect();
        }
        match (self.hot.is_empty(), was_asleep) {
            // The call in which it slept has said it.
            (false, true) => None,
            (false, false) => Some(Stretch::work(calls.costs.wait)),
            (true, _) => {
                self.has_slept = true;
                Some(Stretch::sleep(calls.costs.wait))
            }
        }
    }

    /// Takes a frame from the first hot link, or finds that it has no more.
    fn serve(&mut self, calls: &mut Calls<'_>, port: usize) -> Result<Stretch, MachineError> {
        let (mut cost, frame) = calls.read(self.ports[port].input);
        let Some(header) = frame.and_then(|frame| frame.header) else {
            self.hot.pop_front();
            return Ok(Stretch::work(cost));
        };
        let bytes = header.payload_bytes();
        cost += calls.costs.frame;
        if matches!(header.message, Message::Request(_)) {
            cost += calls.costs.reduce(bytes as u32);
        }
        let now = protocol_time(calls.now);
        let payload = Nothing::bytes(&(), bytes);
        let port = PortId(port as u32);
        self.machine
            .handle_frame(now, port, Carrier::Link, &header, payload, &mut self.arenas)
            .map_err(MachineError::Node)?;
        while self.machine.poll_event().is_some() {}
        self.is_drained = false;
        self.has_worked = true;
        Ok(Stretch::work(cost))
    }

    /// Sends what the machine has to say.
    fn drain(&mut self, calls: &mut Calls<'_>) -> Option<Stretch> {
        loop {
            let port = match self.sending {
                Some(port) => port,
                None => self.machine.poll_ready()?,
            };
            self.sending = Some(port);
            if let Some(transmit) = self.machine.peek_transmit(port) {
                self.machine.pop_transmit(port);
                let header = transmit.header;
                let bytes = header.payload_bytes() as u32;
                let output = self.ports[port.0 as usize].output;
                return Some(calls.send(output, Frame { header: Some(header), bytes }));
            }
            self.sending = None;
        }
    }
}

impl Program for NodeTask {
    fn step(&mut self, calls: &mut Calls<'_>) -> Result<Stretch, MachineError> {
        loop {
            if !self.is_drained {
                if let Some(stretch) = self.drain(calls) {
                    return Ok(stretch);
                }
                self.is_drained = true;
            }
            if let Some(&port) = self.hot.front() {
                return self.serve(calls, port);
            }
            if let Some(stretch) = self.wait(calls) {
                return Ok(stretch);
            }
        }
    }
}
