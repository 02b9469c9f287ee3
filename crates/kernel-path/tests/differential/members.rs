//! The members of one group: mostly honest ones over a bad network, and what others may send.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use tributary_kernel_path::coverage::{self, Fold};
use tributary_kernel_path::user_space::SentPacket;
use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, parse};
use tributary_protocol_testing::frames::{encode, part, sequence};
use tributary_wire::frame::{Header, Message, Part, Shape};
use tributary_wire::{Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator};

use crate::parent::{UPWARD, parent_address};
use crate::process::Sent;
use crate::root::edge;

/// What a packet is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A request, or a repeat of one.
    Honest,
    /// A number far from the window, behind it or ahead.
    WrongWindow,
    WrongCapability,
    WrongSource,
    WrongEdge,
    /// Any bit of the frame's header changed by its sender.
    Garbage,
    /// Any bit behind the edge changed by the network.
    Damaged,
    /// Another segment under the same number.
    Disagreement,
}

/// One packet to the aggregator.
#[derive(Debug)]
pub(crate) struct Shot {
    pub(crate) kind: Kind,
    pub(crate) child: usize,
    pub(crate) from: SocketAddrV4,
    pub(crate) frame: Vec<u8>,
    pub(crate) checksum: Checksum,
}

pub(crate) struct Members {
    window: u32,
    /// Whether segments are drawn that the process folds.
    hands_off: bool,
    /// How many segments each member has sent.
    sent: Vec<u32>,
    /// How often each contribution was sent; not more than so often, as its frames say.
    attempts: BTreeMap<(usize, u32), u8>,
    attempts_max: u8,
    shapes: BTreeMap<u32, Shape>,
    /// Results that came, by segment and by member.
    results: BTreeMap<u32, usize>,
    /// The first segment whose result some member lacks.
    complete: u32,
}

/// The hardware addresses of a child's packets: the aggregator's, then its own.
pub(crate) fn hardware(child: usize) -> [u8; 12] {
    let mut addresses = [0xaa; 12];
    addresses[6..].fill(child as u8);
    addresses
}

/// Flips a bit of a packet's operation, or of what follows it.
pub(crate) fn damage(random: &mut impl Rng, packet: &mut [u8]) {
    let at = random.random_range(HEAD_BYTES + 20..packet.len());
    packet[at] ^= 1 << random.random_range(0..8);
}

/// The frame in a packet that the program sent, and the child that it is for, or the parent.
pub(crate) fn sent_frame(sent: &SentPacket) -> Sent {
    let frame = &sent.bytes[HEAD_BYTES..];
    if parse(&sent.bytes).to == parent_address() {
        return (UPWARD, frame.to_vec());
    }
    (ChildIndex(u16::from_le_bytes([frame[44], frame[45]])), frame.to_vec())
}

impl Members {
    /// Members whose segments the program folds.
    pub(crate) fn new(children: usize, window: u16) -> Self {
        Self {
            window: u32::from(window),
            hands_off: false,
            sent: vec![0; children],
            attempts: BTreeMap::new(),
            attempts_max: u8::MAX,
            shapes: BTreeMap::new(),
            results: BTreeMap::new(),
            complete: 0,
        }
    }

    /// Members whose segments the program gathers, and folds or hands off.
    pub(crate) fn that_hand_off(children: usize, window: u16) -> Self {
        Self { hands_off: true, ..Self::new(children, window) }
    }

    /// The same, whose frames show no attempt beyond this.
    pub(crate) fn with_attempts_up_to(self, attempts_max: u8) -> Self {
        Self { attempts_max, ..self }
    }

    /// Draws the next packet.
    pub(crate) fn next(&mut self, random: &mut impl Rng, peers: &[SocketAddrV4]) -> Shot {
        let child = random.random_range(0..peers.len());
        let kind = match random.random_range(0..100) {
            0..86 => Kind::Honest,
            86..89 => Kind::WrongWindow,
            89..92 => Kind::WrongCapability,
            92..94 => Kind::WrongSource,
            94..96 => Kind::WrongEdge,
            96..98 => Kind::Garbage,
            98 => Kind::Damaged,
            _ if random.random_bool(0.2) => Kind::Disagreement,
            _ => Kind::Honest,
        };
        let number = match kind {
            Kind::WrongWindow => {
                self.complete.wrapping_add(random.random_range(0..200)).wrapping_sub(100)
            }
            _ => self.pick(random, child),
        };
        let part = self.part(random, child, number);
        let payload = payload(random, &part.shape);
        let header = Header { edge: edge(child), message: Message::Request(part) };
        let mut shot = Shot {
            kind,
            child,
            from: peers[child],
            frame: encode(&header, &payload),
            checksum: *[Checksum::None, Checksum::Full, Checksum::Partial]
                .choose(random)
                .expect("there are three"),
        };
        spoil(random, &mut shot, header, &payload);
        shot
    }

    /// Notes results. Returns how many there were.
    pub(crate) fn note(&mut self, sent: &[Sent]) -> u64 {
        let mut results = 0;
        for (_, frame) in sent {
            let Ok(Header { message: Message::Result(part), .. }) = Header::decode(frame) else {
                continue;
            };
            results += 1;
            let number = part.sequence.distance_from(sequence(0));
            self.note_complete(number);
        }
        results
    }

    /// Notes that the process has completed a segment.
    pub(crate) fn note_complete(&mut self, number: u32) {
        *self.results.entry(number).or_default() += 1;
        while self.results.contains_key(&self.complete) {
            self.complete += 1;
        }
    }

    /// A segment that this member may send: the next, a skipped one (the packets between are lost), or
    /// an earlier one again.
    fn pick(&mut self, random: &mut impl Rng, child: usize) -> u32 {
        let next = self.sent[child];
        let credit = (self.complete + self.window).saturating_sub(next);
        let lost = if random.random_bool(0.1) { random.random_range(0..=2) } else { 0 };
        if credit > lost && random.random_bool(0.7) {
            self.sent[child] = next + lost + 1;
            return next + lost;
        }
        let oldest = self.complete.saturating_sub(self.window);
        if next > oldest { random.random_range(oldest..next) } else { oldest }
    }

    fn part(&mut self, random: &mut impl Rng, child: usize, number: u32) -> Part {
        let (children, hands_off) = (self.sent.len(), self.hands_off);
        let shape =
            *self.shapes.entry(number).or_insert_with(|| any_shape(random, children, hands_off));
        let mut part = part(OperationNumber(number), sequence(number), shape);
        part.has_data = shape.operator() != Operator::Barrier;
        let attempt = self.attempts.entry((child, number)).or_default();
        part.retransmit.attempt = *attempt;
        *attempt = attempt.saturating_add(1).min(self.attempts_max);
        part
    }
}

pub(crate) fn spoil(random: &mut impl Rng, shot: &mut Shot, mut header: Header, payload: &[u8]) {
    match shot.kind {
        Kind::Honest | Kind::WrongWindow => return,
        Kind::Damaged => {
            shot.checksum = Checksum::Full;
            return;
        }
        Kind::WrongSource => {
            shot.from.set_port(random.random());
            return;
        }
        Kind::Garbage => {
            let at = random.random_range(0..shot.frame.len().min(64));
            shot.frame[at] ^= 1 << random.random_range(0..8);
            return;
        }
        Kind::WrongCapability => {
            let mut bytes = header.edge.capability.to_bytes();
            bytes[random.random_range(0..16)] ^= 1 << random.random_range(0..8);
            header.edge.capability = Capability::from_bytes(bytes);
        }
        Kind::WrongEdge => match random.random_range(0..3) {
            0 => header.edge.child.0 = random.random(),
            1 => header.edge.epoch = Epoch(random.random()),
            _ => header.edge.group = GroupId(random.random_range(4..8)),
        },
        Kind::Disagreement => {
            let (Message::Request(part) | Message::Result(part)) = &mut header.message else {
                return;
            };
            part.operation.0 = part.operation.0.wrapping_add(1);
        }
    }
    shot.frame = encode(&header, payload);
}

/// A shape that the program takes, and folds if it is not to hand any off.
fn any_shape(random: &mut impl Rng, children: usize, hands_off: bool) -> Shape {
    loop {
        let operator = *Operator::ALL.choose(random).expect("there are operators");
        if operator == Operator::Barrier {
            return Shape::BARRIER;
        }
        let datatype = *Datatype::ALL.choose(random).expect("there are types");
        let most = tributary_kernel_path::PAYLOAD_BYTES_MAX / datatype.size_bytes();
        let elements = if random.random_bool(0.5) {
            random.random_range(1..=3)
        } else {
            random.random_range(1..=most)
        };
        match coverage::fold(operator, datatype, elements as u32, children) {
            Some(Fold::InKernel) => {}
            Some(Fold::InProcess) if hands_off => {}
            _ => continue,
        }
        return Shape::new(operator, datatype, elements as u32).expect("it is defined");
    }
}

/// Elements of any bits; floats are often near each other, and often special.
pub(crate) fn payload(random: &mut impl Rng, shape: &Shape) -> Vec<u8> {
    let mut bytes = vec![0; shape.bytes()];
    random.fill_bytes(&mut bytes);
    let (size, exponent) = match shape.datatype() {
        Datatype::F32 => (4, 0x3f),
        Datatype::F64 => (8, 0x3f),
        _ => return bytes,
    };
    for element in bytes.chunks_exact_mut(size) {
        match random.random_range(0..8) {
            0 => element.fill(0),
            1 => element[size - 1] = 0x7f,
            2 => {}
            _ => element[size - 1] = exponent | (element[size - 1] & 0x80),
        }
        if is_nan(element) {
            // The process's own sums of two NaNs depend on how the compiler orders operands.
            element[size - 1] &= 0x80;
        }
    }
    bytes
}

fn is_nan(element: &[u8]) -> bool {
    match element.len() {
        4 => f32::from_le_bytes(element.try_into().expect("four bytes")).is_nan(),
        _ => f64::from_le_bytes(element.try_into().expect("eight bytes")).is_nan(),
    }
}
