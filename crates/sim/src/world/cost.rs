//! The cost of actions in virtual time, from a preset's constants.

use tributary_protocol::Carrier;

use crate::engine::Picos;
use crate::preset::{Preset, Program};

/// A cost that grows with length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear {
    fixed: Picos,
    byte_ps: f64,
}

impl Linear {
    /// `fixed_ns` and `byte_ns` for each byte.
    #[must_use]
    pub(super) fn new(fixed_ns: f64, byte_ns: f64) -> Self {
        Self { fixed: Picos::from_ns(fixed_ns), byte_ps: byte_ns * 1e3 }
    }

    /// For this many bytes.
    #[must_use]
    #[inline]
    pub(super) fn of(&self, bytes: u32) -> Picos {
        self.fixed + Picos((self.byte_ps * f64::from(bytes)) as u64)
    }
}

/// The cost of the actions of hosts and aggregation nodes.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Most bytes of data in a packet.
    pub(super) mtu_bytes: u32,
    pub(super) adapter: AdapterCosts,
    pub(super) tree: TreeCosts,
    pub(super) message: MessageCosts,
    pub(super) copies: CopyCosts,
    pub(super) node: NodeCosts,
    pub(super) machine: Option<MachineCosts>,
    pub(super) noise: NoiseCosts,
    /// None if no packet is lost.
    pub(super) loss: Option<LossCosts>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LossCosts {
    pub(super) share: f64,
    /// After what time a stream's lost packet is there, sent once more.
    pub(super) stream_repeat: Picos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AdapterCosts {
    pub(super) transmit: Picos,
    pub(super) fetch: Linear,
    pub(super) receive: Linear,
    pub(super) gap: Picos,
    pub(super) inline_max_bytes: u32,
    pub(super) inline_byte: Linear,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TreeCosts {
    pub(super) call: Picos,
    pub(super) request: Linear,
    pub(super) result: Linear,
    pub(super) line_read: Picos,
    pub(super) notice_max_bytes: u32,
    pub(super) repeat: Picos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MessageCosts {
    pub(super) call: Picos,
    /// Sending eagerly; with 0 bytes, sending a rendezvous control message.
    pub(super) send: Linear,
    /// Receiving a rendezvous control message.
    pub(super) control: Picos,
    pub(super) receive: Linear,
    pub(super) receive_cold: Linear,
    pub(super) reduce: Linear,
    pub(super) register: Picos,
    /// Each end of a message through shared memory.
    pub(super) share: Linear,
    pub(super) line: Picos,
    pub(super) eager_max_bytes: u32,
    /// The longest frame of messages over stream sockets, if they are such.
    pub(super) frame_max_bytes: Option<u32>,
}

/// Datagrams between the members of a replicated group.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyCosts {
    /// Each further copy that a call sends.
    pub(super) send: Linear,
    /// A call that takes all that have come, and each of them.
    pub(super) receive_call: Picos,
    pub(super) receive: Linear,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeCosts {
    pub(super) latency: Picos,
    pub(super) take: Linear,
    pub(super) reply: Linear,
    /// A program that takes short segments of datagrams before the process wakes.
    pub(super) program: Option<ProgramCosts>,
    /// Taking what comes through the memory of the aggregator's own host, and replying that way.
    pub(super) take_local: Linear,
    pub(super) reply_local: Linear,
    /// Whether one thread takes packets and sends copies, as in a daemon.
    pub(super) has_one_thread: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramCosts {
    pub(super) take: Linear,
    pub(super) reply: Picos,
    pub(super) payload_max_bytes: u32,
}

impl ProgramCosts {
    fn new(program: &Program) -> Self {
        Self {
            take: Linear::new(
                program.before.value() + program.packet.value(),
                program.byte.value(),
            ),
            reply: program.reply.span(),
            payload_max_bytes: program.payload_max.bytes() as u32,
        }
    }
}

/// The machine that all hosts share.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineCosts {
    pub(super) cores: u32,
    /// What a core needs to go from one process to another.
    pub(super) switch: Picos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NoiseCosts {
    pub(super) jitter: f64,
    pub(super) skew_ps: f64,
    /// Mean time between two detours of one core; none without detours.
    pub(super) between_detours_ps: Option<f64>,
    pub(super) detour_ps: f64,
}

impl Costs {
    /// The costs of a preset.
    #[must_use]
    pub fn new(preset: &Preset) -> Self {
        let (adapter, tree, noise) = (&preset.adapter, &preset.tree, &preset.noise);
        let bus_byte_ns = adapter.bus.byte_ps() / 1e3;
        let rate = noise.detour_rate.value();
        let line_ns = preset.memory.line_gap_near.value();
        Self {
            mtu_bytes: preset.packet.mtu.bytes() as u32,
            adapter: AdapterCosts {
                transmit: adapter.transmit.span(),
                fetch: Linear::new(adapter.fetch.value(), bus_byte_ns),
                receive: Linear::new(adapter.receive.value(), bus_byte_ns),
                gap: adapter.packet_rate.gap(),
                inline_max_bytes: adapter.inline_max.bytes() as u32,
                inline_byte: Linear::new(0.0, adapter.inline_byte.value()),
            },
            tree: TreeCosts {
                call: tree.call.span(),
                request: Linear::new(tree.request.value(), tree.segment_byte.value()),
                result: Linear::new(tree.result.value(), tree.segment_byte.value()),
                line_read: tree.line_read.span(),
                notice_max_bytes: tree.notice_max.bytes() as u32,
                repeat: tree.repeat.span(),
            },
            message: MessageCosts::new(preset),
            copies: CopyCosts::new(preset),
            node: preset.aggregation.as_ref().map_or_else(NodeCosts::nothing, |nodes| NodeCosts {
                latency: nodes.latency.span(),
                take: Linear::new(nodes.packet.value(), nodes.byte.value()),
                reply: Linear::new(nodes.reply.value(), nodes.reply_byte.value()),
                program: preset.program().map(ProgramCosts::new),
                take_local: Linear::new(line_ns, nodes.byte.value()),
                reply_local: Linear::new(line_ns, preset.memory.copy.value()),
                has_one_thread: nodes.on_hosts,
            }),
            machine: preset.machine.as_ref().map(|machine| MachineCosts {
                cores: machine.cores.count(),
                switch: machine.switch.span(),
            }),
            noise: NoiseCosts {
                jitter: noise.jitter.value(),
                skew_ps: noise.skew.value() * 1e3,
                between_detours_ps: (rate > 0.0).then(|| 1e12 / rate),
                detour_ps: noise.detour.value() * 1e3,
            },
            loss: preset.loss.as_ref().filter(|loss| loss.share.value() > 0.0).map(|loss| {
                LossCosts { share: loss.share.value(), stream_repeat: loss.stream_repeat.span() }
            }),
        }
    }

    /// The same without noise.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.noise =
            NoiseCosts { jitter: 0.0, skew_ps: 0.0, between_detours_ps: None, detour_ps: 0.0 };
        self
    }
}

impl MessageCosts {
    fn new(preset: &Preset) -> Self {
        let (software, memory) = (&preset.software, &preset.memory);
        let (receive_ns, byte_ns) = (software.receive.value(), software.eager_byte.value());
        Self {
            call: software.call.span(),
            send: Linear::new(software.send.value(), byte_ns),
            control: software.receive.span(),
            receive: Linear::new(receive_ns, byte_ns),
            receive_cold: Linear::new(receive_ns, software.cold_byte.value()),
            reduce: Linear::new(0.0, software.reduce_byte.value()),
            register: software.register.span(),
            share: Linear::new(memory.line_gap_near.value(), memory.copy.value()),
            line: memory.line_near.span(),
            eager_max_bytes: preset.adapter.eager_max.bytes() as u32,
            frame_max_bytes: software.frame_max.as_ref().map(|frame| frame.bytes() as u32),
        }
    }
}

impl CopyCosts {
    /// In a system without datagrams a copy costs what a message does.
    fn new(preset: &Preset) -> Self {
        let software = &preset.software;
        let byte_ns = software.eager_byte.value();
        let (send_ns, receive_ns) = match &preset.datagrams {
            Some(datagrams) => (datagrams.further_send.value(), datagrams.each_receive.value()),
            None => (software.send.value(), software.receive.value()),
        };
        Self {
            send: Linear::new(send_ns, byte_ns),
            receive_call: Picos::from_ns(software.receive.value() - receive_ns),
            receive: Linear::new(receive_ns, byte_ns),
        }
    }
}

impl NodeCosts {
    /// The program, if it takes a datagram of so many bytes.
    pub(super) fn program_for(&self, carrier: Carrier, bytes: u32) -> Option<&ProgramCosts> {
        let program = self.program.as_ref()?;
        (carrier != Carrier::Link && bytes <= program.payload_max_bytes).then_some(program)
    }

    /// The costs in a system without aggregation nodes, which are never charged.
    fn nothing() -> Self {
        Self {
            latency: Picos::ZERO,
            take: Linear::new(0.0, 0.0),
            reply: Linear::new(0.0, 0.0),
            program: None,
            take_local: Linear::new(0.0, 0.0),
            reply_local: Linear::new(0.0, 0.0),
            has_one_thread: false,
        }
    }
}
