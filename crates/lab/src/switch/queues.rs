//! The switch's machine: which ports a frame leaves by, when, and which it does not reach.
//!
//! Time and a seed enter as arguments, and nothing is sent here. A frame comes as the kernel hands it over: a
//! virtio-net header, which says what is still to be done for checksum and segmentation, then Ethernet.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use super::counts::PortCounts;
use super::header;

/// Most frames that wait for one port.
pub(crate) const PORT_FRAMES_MAX: usize = 16_384;

/// Most bytes that wait for one port.
pub(crate) const PORT_BYTES_MAX: usize = 64 << 20;

/// How long a frame may wait for its turn at a port with a rate, as at the token bucket of a lab without delay.
const TURN_MAX_NS: u64 = 20_000_000;

const PPM: u64 = 1_000_000;

/// What the switch does to frames.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// By source and target port: how long frames are held.
    pub(crate) holds_ns: Vec<Vec<u64>>,
    /// The hardware address behind each port.
    pub(crate) addresses: Vec<[u8; 6]>,
    /// How much longer a frame is held at most.
    pub(crate) jitter_ns: u64,
    /// Each port's rate in each direction.
    pub(crate) rate_bits_per_s: Option<u64>,
    /// The share of IP packets that each receiver loses, in parts of a million.
    pub(crate) loss_ppm: u32,
    /// Whether multicast IP packets are dropped.
    pub(crate) blocks_multicast: bool,
}

/// A frame to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) port: usize,
    pub(crate) frame: Rc<[u8]>,
    /// When it was to be sent.
    pub(crate) due_ns: u64,
}

/// All ports' queues.
pub(crate) struct Queues {
    rules: Rules,
    port_of: HashMap<[u8; 6], usize>,
    ports: Vec<Port>,
    /// By source and target port: when the last frame reaches the target's queue.
    last_ns: Vec<Vec<u64>>,
    held: BinaryHeap<Held>,
    taken: u64,
    randomness: Randomness,
}

/// One port's state.
#[derive(Default)]
struct Port {
    frames: usize,
    bytes: usize,
    /// When the last frame from the member is in.
    in_until_ns: u64,
    /// When the last frame to the member is out.
    out_until_ns: u64,
    /// Whether the member's interface has been up.
    was_up: bool,
    counts: PortCounts,
}

/// A frame on its way to a port.
struct Held {
    at_ns: u64,
    /// Its place among frames of the same time.
    number: u64,
    port: usize,
    frame: Rc<[u8]>,
    /// Whether it has had its turn at the port, so that `at_ns` is when it is to be sent.
    had_turn: bool,
}

impl Queues {
    pub(crate) fn new(rules: Rules, seed: u64) -> Self {
        let count = rules.addresses.len();
        let numbered = rules.addresses.iter().enumerate();
        Self {
            port_of: numbered.map(|(port, address)| (*address, port)).collect(),
            ports: (0..count).map(|_| Port::default()).collect(),
            last_ns: vec![vec![0; count]; count],
            held: BinaryHeap::new(),
            taken: 0,
            randomness: Randomness(seed),
            rules,
        }
    }

    /// Takes one frame that a member sent at `now_ns`.
    pub(crate) fn handle_frame(&mut self, now_ns: u64, source: usize, frame: &[u8]) {
        self.ports[source].counts.received += 1;
        let Some(target) = header::target(frame) else {
            self.ports[source].counts.unknown += 1;
            return;
        };
        let Some(in_ns) = self.take_in(now_ns, source, frame) else { return };
        if header::is_group(target) {
            let is_blocked = self.rules.blocks_multicast && header::is_multicast_ip(frame);
            if is_blocked {
                self.ports[source].counts.blocked += 1;
                return;
            }
            let frame: Rc<[u8]> = frame.into();
            for port in (0..self.ports.len()).filter(|port| *port != source) {
                self.hold(in_ns, source, port, &frame);
            }
        } else if let Some(port) = self.port_of.get(&target).copied().filter(|port| *port != source)
        {
            self.hold(in_ns, source, port, &frame.into());
        } else {
            self.ports[source].counts.unknown += 1;
        }
    }

    /// The next frame to send; `None` if none is due.
    pub(crate) fn poll_departure(&mut self, now_ns: u64) -> Option<Departure> {
        loop {
            if self.held.peek()?.at_ns > now_ns {
                return None;
            }
            let held = self.held.pop()?;
            let port = &mut self.ports[held.port];
            let rate = self.rules.rate_bits_per_s.filter(|_| !held.had_turn);
            if let Some(rate) = rate {
                let starts_ns = held.at_ns.max(port.out_until_ns);
                if starts_ns - held.at_ns > TURN_MAX_NS {
                    port.release(&held.frame);
                    port.counts.overflowed += 1;
                    continue;
                }
                port.out_until_ns = starts_ns + sending_ns(&held.frame, rate);
                let at_ns = port.out_until_ns;
                self.push(Held { at_ns, had_turn: true, ..held });
                continue;
            }
            port.release(&held.frame);
            return Some(Departure { port: held.port, frame: held.frame, due_ns: held.at_ns });
        }
    }

    /// When `poll_departure` has something to do next.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.held.peek().map(|held| held.at_ns)
    }

    /// Notes whether a member's network took a frame that was sent. What a lab says while it comes up reaches all of its
    /// members, some of which have no network yet: that is no drop.
    pub(crate) fn on_sent(&mut self, port: usize, is_taken: bool) {
        let port = &mut self.ports[port];
        port.was_up |= is_taken;
        port.counts.sent += u64::from(is_taken);
        port.counts.refused += u64::from(!is_taken && port.was_up);
    }

    /// Each port's counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = &PortCounts> {
        self.ports.iter().map(|port| &port.counts)
    }

    /// When a frame is in, at the port's rate; `None` if it had to wait too long.
    fn take_in(&mut self, now_ns: u64, source: usize, frame: &[u8]) -> Option<u64> {
        let Some(rate) = self.rules.rate_bits_per_s else { return Some(now_ns) };
        let port = &mut self.ports[source];
        let starts_ns = now_ns.max(port.in_until_ns);
        if starts_ns - now_ns > TURN_MAX_NS {
            port.counts.overflowed += 1;
            return None;
        }
        port.in_until_ns = starts_ns + sending_ns(frame, rate);
        Some(port.in_until_ns)
    }

    /// Holds a frame for one receiver, unless the receiver loses it or its port is full.
    fn hold(&mut self, in_ns: u64, source: usize, target: usize, frame: &Rc<[u8]>) {
        let jitter_ns = match self.rules.jitter_ns {
            0 => 0,
            most => self.randomness.below(most + 1),
        };
        let loss = u64::from(self.rules.loss_ppm);
        let port = &mut self.ports[target];
        if loss > 0 && header::is_ip(frame) && self.randomness.below(PPM) < loss {
            port.counts.lost += 1;
            return;
        }
        if port.frames >= PORT_FRAMES_MAX || port.bytes + frame.len() > PORT_BYTES_MAX {
            port.counts.overflowed += 1;
            return;
        }
        port.frames += 1;
        port.bytes += frame.len();
        port.counts.most_frames = port.counts.most_frames.max(port.frames as u64);
        // Jitter never lets a frame overtake another between the same two members.
        let last_ns = &mut self.last_ns[source][target];
        *last_ns = (*last_ns).max(in_ns + self.rules.holds_ns[source][target] + jitter_ns);
        let at_ns = *last_ns;
        self.push(Held {
            at_ns,
            number: 0,
            port: target,
            frame: Rc::clone(frame),
            had_turn: false,
        });
    }

    fn push(&mut self, held: Held) {
        self.taken += 1;
        self.held.push(Held { number: self.taken, ..held });
    }
}

impl Port {
    fn release(&mut self, frame: &[u8]) {
        self.frames -= 1;
        self.bytes -= frame.len();
    }
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

// The heap's greatest is to be the earliest.
impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

fn sending_ns(frame: &[u8], rate_bits_per_s: u64) -> u64 {
    let bits_e9 = u128::from(header::wire_bytes(frame)) * 8 * 1_000_000_000;
    u64::try_from(bits_e9 / u128::from(rate_bits_per_s)).unwrap_or(u64::MAX)
}

/// A generator of random numbers (SplitMix64), which needs no more than its seed.
struct Randomness(u64);

impl Randomness {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is at most 2^32: by the upper half of a product.
    fn below(&mut self, end: u64) -> u64 {
        ((self.next() >> 32) * end) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::HEADER_BYTES;
    use super::*;

    const MS: u64 = 1_000_000;

    fn rules(ports: usize) -> Rules {
        Rules {
            holds_ns: vec![vec![MS; ports]; ports],
            addresses: (0..ports).map(address).collect(),
            jitter_ns: 0,
            rate_bits_per_s: None,
            loss_ppm: 0,
            blocks_multicast: false,
        }
    }

    fn address(port: usize) -> [u8; 6] {
        [2, 0x54, 0, 0, 0, port as u8]
    }

    /// An IP frame with a number, `payload_bytes` long behind Ethernet's header.
    fn frame(target: [u8; 6], number: u32, payload_bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend(target);
        frame.extend([2, 0x54, 9, 9, 9, 9, 0x08, 0x00]);
        let start = frame.len();
        frame.extend(number.to_be_bytes());
        frame.resize(start + payload_bytes, 0);
        frame
    }

    fn number_of(frame: &[u8]) -> u32 {
        u32::from_be_bytes(frame[HEADER_BYTES + 14..HEADER_BYTES + 18].try_into().unwrap())
    }

    /// All frames that leave, each at the time of its deadline: port, time and number.
    fn drain(queues: &mut Queues) -> Vec<(usize, u64, u32)> {
        let mut left = Vec::new();
        while let Some(at_ns) = queues.poll_timeout() {
            while let Some(it) = queues.poll_departure(at_ns) {
                assert!(it.due_ns <= at_ns);
                left.push((it.port, it.due_ns, number_of(&it.frame)));
            }
        }
        left
    }

    const GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];

    #[test]
    fn a_frame_is_held_for_its_time_and_no_longer() {
        let mut rules = rules(3);
        rules.holds_ns[0][2] = 5 * MS;
        let mut queues = Queues::new(rules, 1);
        queues.handle_frame(100, 0, &frame(address(2), 7, 46));
        queues.handle_frame(200, 0, &frame(address(1), 8, 46));
        assert_eq!(queues.poll_timeout(), Some(200 + MS));
        assert_eq!(queues.poll_departure(200 + MS - 1), None);
        assert_eq!(drain(&mut queues), [(1, 200 + MS, 8), (2, 100 + 5 * MS, 7)]);
        assert_eq!(queues.poll_timeout(), None);
    }

    #[test]
    fn frames_to_a_group_leave_by_every_other_port_and_unknown_ones_by_none() {
        let mut queues = Queues::new(rules(4), 1);
        queues.handle_frame(0, 2, &frame(GROUP, 1, 46));
        queues.handle_frame(0, 2, &frame([0xff; 6], 2, 46));
        queues.handle_frame(0, 2, &frame(address(9), 3, 46));
        queues.handle_frame(0, 2, &frame(address(2), 4, 46));
        queues.handle_frame(0, 2, &[0; HEADER_BYTES + 13]);
        let left = drain(&mut queues);
        let to = |number| -> Vec<usize> {
            left.iter().filter(|it| it.2 == number).map(|it| it.0).collect()
        };
        assert_eq!((to(1), to(2), left.len()), (vec![0, 1, 3], vec![0, 1, 3], 6));
        assert_eq!(queues.counts().nth(2).unwrap().unknown, 3);
    }

    #[test]
    fn jitter_is_within_its_bounds_and_keeps_the_order_between_two_members() {
        let mut rules = rules(3);
        rules.jitter_ns = MS / 2;
        let mut queues = Queues::new(rules, 5);
        for number in 0..10_000 {
            let now_ns = u64::from(number) * 50_000;
            queues.handle_frame(now_ns, (number % 2) as usize, &frame(GROUP, number, 46));
        }
        let left = drain(&mut queues);
        assert_eq!(left.len(), 20_000);
        for source in 0..2 {
            for target in (0..3).filter(|target| *target != source) {
                let flow: Vec<_> = left
                    .iter()
                    .filter(|it| it.0 == target && (it.2 % 2) as usize == source)
                    .collect();
                assert!(flow.is_sorted_by(|one, next| one.2 < next.2));
                let extra = flow.iter().map(|it| it.1 - u64::from(it.2) * 50_000 - MS);
                assert!(extra.clone().all(|extra| extra <= MS / 2));
                assert!(extra.clone().min().unwrap() < MS / 4 && extra.max().unwrap() > MS / 4);
            }
        }
    }

    #[test]
    fn each_receiver_of_a_group_loses_by_itself() {
        let mut rules = rules(5);
        rules.loss_ppm = 100_000;
        let mut queues = Queues::new(rules, 11);
        for number in 0..10_000 {
            queues.handle_frame(u64::from(number) * 1_000, 0, &frame(GROUP, number, 46));
        }
        let mut missing = vec![[true; 10_000]; 5];
        for (port, _, number) in drain(&mut queues) {
            missing[port][number as usize] = false;
        }
        let both = |one: usize, other: usize| {
            (0..10_000).filter(|at| missing[one][*at] && missing[other][*at]).count()
        };
        for port in 1..5 {
            // Five standard deviations, of 30 and of 10.
            assert!((850..=1_150).contains(&both(port, port)), "{}", both(port, port));
            assert_eq!(queues.counts().nth(port).unwrap().lost as usize, both(port, port));
            for other in 1..port {
                assert!((50..=150).contains(&both(port, other)), "{}", both(port, other));
            }
        }
    }

    #[test]
    fn what_is_no_ip_packet_is_not_lost() {
        let mut rules = rules(2);
        rules.loss_ppm = 500_000;
        let mut queues = Queues::new(rules, 3);
        let mut request = frame([0xff; 6], 0, 46);
        request[HEADER_BYTES + 12..HEADER_BYTES + 14].copy_from_slice(&[0x08, 0x06]);
        for _ in 0..100 {
            queues.handle_frame(0, 0, &request);
        }
        assert_eq!(drain(&mut queues).len(), 100);
    }

    #[test]
    fn a_rate_spaces_frames_on_the_way_in_and_on_the_way_out() {
        let mut rules = rules(3);
        rules.rate_bits_per_s = Some(1_000_000_000);
        let mut queues = Queues::new(rules, 1);
        // 1,488 bytes with Ethernet's header, 1,512 on the wire: 12,096 ns.
        for source in [0, 0, 1] {
            queues.handle_frame(0, source, &frame(address(2), source as u32, 1_474));
        }
        let times: Vec<u64> = drain(&mut queues).iter().map(|it| it.1).collect();
        // Two come in at once and follow each other out; the third came in behind one of them.
        assert_eq!(times, [MS + 2 * 12_096, MS + 3 * 12_096, MS + 4 * 12_096]);
    }

    #[test]
    fn a_port_with_a_rate_drops_what_would_wait_too_long() {
        let mut rules = rules(2);
        rules.rate_bits_per_s = Some(1_000_000);
        let mut queues = Queues::new(rules, 1);
        // 12.096 ms each: the third would wait for 24.
        for number in 0..3 {
            queues.handle_frame(0, 0, &frame(address(1), number, 1_474));
        }
        assert_eq!(drain(&mut queues).len(), 2);
        assert_eq!(queues.counts().next().unwrap().overflowed, 1);
    }

    #[test]
    fn segments_that_travel_together_take_the_time_of_each() {
        let mut whole = frame(address(1), 0, 40 + 3 * 1_000);
        whole[1] = 1;
        whole[2..4].copy_from_slice(&54_u16.to_ne_bytes());
        whole[4..6].copy_from_slice(&1_000_u16.to_ne_bytes());
        assert_eq!(header::wire_bytes(&whole), 3 * (54 + 1_000 + 24));
        assert_eq!(header::wire_bytes(&frame(address(1), 0, 10)), 84);
    }

    #[test]
    fn queues_are_bounded_and_a_full_port_leaves_others_alone() {
        let mut queues = Queues::new(rules(3), 1);
        for number in 0..PORT_FRAMES_MAX as u32 + 10 {
            queues.handle_frame(0, 0, &frame(address(1), number, 46));
        }
        queues.handle_frame(0, 0, &frame(GROUP, u32::MAX, 46));
        assert_eq!(queues.counts().nth(1).unwrap().overflowed, 11);
        let left = drain(&mut queues);
        assert_eq!(left.len(), PORT_FRAMES_MAX + 1);
        assert_eq!(left.last().map(|it| (it.0, it.2)), Some((2, u32::MAX)));
        // What has left makes room.
        queues.handle_frame(0, 0, &frame(address(1), 0, 46));
        assert_eq!(drain(&mut queues).len(), 1);
        let large = frame(address(1), 0, 65_000);
        for _ in 0..PORT_BYTES_MAX / large.len() + 5 {
            queues.handle_frame(0, 0, &large);
        }
        assert_eq!(drain(&mut queues).len(), PORT_BYTES_MAX / large.len());
    }

    #[test]
    fn blocked_multicast_leaves_unicast_and_broadcast_alone() {
        let mut rules = rules(2);
        rules.blocks_multicast = true;
        let mut queues = Queues::new(rules, 1);
        for target in [GROUP, [0xff; 6], address(1)] {
            queues.handle_frame(0, 0, &frame(target, 0, 46));
        }
        assert_eq!(drain(&mut queues).len(), 2);
        assert_eq!(queues.counts().next().unwrap().blocked, 1);
    }

    #[test]
    fn a_frame_that_is_not_taken_is_a_drop_once_the_member_was_up() {
        let mut queues = Queues::new(rules(2), 1);
        for is_taken in [false, true, false] {
            queues.on_sent(1, is_taken);
        }
        let counts = queues.counts().nth(1).unwrap();
        assert_eq!((counts.sent, counts.refused), (1, 1));
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let run = |seed| {
            let mut rules = rules(4);
            (rules.jitter_ns, rules.loss_ppm) = (MS, 50_000);
            let mut queues = Queues::new(rules, seed);
            for number in 0..500 {
                queues.handle_frame(u64::from(number) * 9_000, 0, &frame(GROUP, number, 46));
            }
            drain(&mut queues)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
