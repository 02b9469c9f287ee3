//! Virtual links. What is sent at one end arrives at the other, later.

use rand::RngExt;
use rand_pcg::Pcg64;
use tributary_protocol::Carrier;
use tributary_protocol::node::PortId;
use tributary_protocol_testing::{InFlight, Windows, frames};
use tributary_wire::frame::{Header, Message};

use crate::plan::GroupPlan;

/// How the links of one run behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) seed: u64,
    pub(crate) delay_ns_max: u64,
    /// Frames that a link takes in each direction before it is full.
    pub(crate) link_frames: usize,
    /// Whether requests and results may overtake each other and come twice.
    pub(crate) is_disorderly: bool,
    /// How datagrams travel, if all processes take them; none for no datagrams.
    pub(crate) datagrams: Option<Datagrams>,
}

/// How datagrams travel: in any order, some twice, some not at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    /// Probability of being lost.
    pub(crate) loss: f64,
    /// From when on none arrives.
    pub(crate) blocked_at: u64,
    /// Whether they keep their order.
    pub(crate) is_orderly: bool,
    /// Whether results are multicast too.
    pub(crate) has_multicast: bool,
    /// Whether multicast reaches no process at all.
    pub(crate) multicast_is_blocked: bool,
    /// Members that multicast does not reach: the first so many.
    pub(crate) without_multicast: usize,
}

impl Datagrams {
    pub(crate) fn with_loss(loss: f64) -> Self {
        Self {
            loss,
            blocked_at: u64::MAX,
            is_orderly: false,
            has_multicast: false,
            multicast_is_blocked: false,
            without_multicast: 0,
        }
    }
}

impl Timing {
    pub(crate) fn orderly(seed: u64) -> Self {
        let link_frames = 1 + (seed % 7) as usize;
        Self { seed, delay_ns_max: 1000, link_frames, is_disorderly: false, datagrams: None }
    }

    pub(crate) fn disorderly(seed: u64) -> Self {
        Self { link_frames: 64, is_disorderly: true, ..Self::orderly(seed) }
    }

    pub(crate) fn lossy(seed: u64, loss: f64) -> Self {
        Self { datagrams: Some(Datagrams::with_loss(loss)), ..Self::orderly(seed) }
    }
}

/// The process at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Node { node: usize, port: PortId },
    Member(usize),
}

/// The end nearer to the members.
pub(crate) const LOWER: usize = 0;
/// The end nearer to the root.
pub(crate) const UPPER: usize = 1;

/// A link. Arrays are indexed by the end at which a thing is, or to which it travels.
pub(crate) struct Link {
    pub(crate) holders: [Holder; 2],
    pub(crate) is_open: [bool; 2],
    /// Frames for an end that has stopped reading.
    pub(crate) stopped: [Option<Vec<Vec<u8>>>; 2],
    in_flight: [usize; 2],
    last_at: [u64; 2],
    last_datagram_at: [u64; 2],
    floor_at: [u64; 2],
    /// Requests that were sent up over this link and are not answered.
    windows: Windows,
    pub(crate) peak_chunks: usize,
    pub(crate) window: usize,
    osos: usize,
    pub(crate) peak_outstanding: usize,
    pub(crate) has_wrapped: bool,
    /// Datagrams sent, lost ones included, towards each end.
    pub(crate) datagrams: [u64; 2],
    /// Datagrams lost.
    pub(crate) lost: u64,
    /// Requests and results that the link itself carried.
    pub(crate) link_parts: u64,
}

impl Link {
    pub(crate) fn new(lower: Holder, upper: Holder, plan: &GroupPlan) -> Self {
        Self {
            holders: [lower, upper],
            is_open: [true; 2],
            stopped: [None, None],
            in_flight: [0; 2],
            last_at: [0; 2],
            last_datagram_at: [0; 2],
            floor_at: [0; 2],
            windows: Windows::default(),
            peak_chunks: 0,
            window: plan.stream.map_or(0, |terms| usize::from(terms.window)),
            osos: usize::from(plan.osos),
            peak_outstanding: 0,
            has_wrapped: false,
            datagrams: [0; 2],
            lost: 0,
            link_parts: 0,
        }
    }

    pub(crate) fn takes_more(&self, to: usize, timing: &Timing) -> bool {
        self.in_flight[to] < timing.link_frames
    }

    /// Notes a frame that is sent. Returns when it arrives: several times, if the link is
    /// disordered.
    pub(crate) fn on_sent(
        &mut self,
        to: usize,
        now: u64,
        header: &Header,
        timing: &Timing,
        random: &mut Pcg64,
    ) -> Vec<u64> {
        self.note(header, timing);
        self.in_flight[to] += 1;
        let mut at = now + random.random_range(1..=timing.delay_ns_max);
        let is_data = matches!(
            header.message,
            Message::Request(_) | Message::Result(_) | Message::Chunk(_) | Message::ChunkResult(_)
        );
        self.link_parts +=
            u64::from(matches!(header.message, Message::Request(_) | Message::Result(_)));
        let mut times = Vec::new();
        if is_data && timing.is_disorderly {
            at = at.max(self.floor_at[to]);
            if random.random_bool(0.3) {
                times.push(at + random.random_range(0..=timing.delay_ns_max));
            }
            times.push(at);
            self.last_at[to] = times.iter().copied().fold(self.last_at[to], u64::max);
        } else {
            at = at.max(self.last_at[to]);
            (self.last_at[to], self.floor_at[to]) = (at, at);
            times.push(at);
        }
        times
    }

    /// Notes a datagram that is sent. Returns when it arrives: never, once or twice.
    pub(crate) fn on_datagram(
        &mut self,
        to: usize,
        now: u64,
        header: &Header,
        timing: &Timing,
        random: &mut Pcg64,
    ) -> Vec<u64> {
        let travel = timing.datagrams.expect("nobody sends datagrams where nobody takes them");
        let is_chunk = matches!(header.message, Message::Chunk(_) | Message::ChunkResult(_));
        assert!(!is_chunk, "chunks are the link's");
        self.note(header, timing);
        self.datagrams[to] += 1;
        let mut times = Vec::new();
        let copies = if random.random_bool(0.1) && !travel.is_orderly { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = now + random.random_range(1..=timing.delay_ns_max);
            if travel.is_orderly {
                at = at.max(self.last_datagram_at[to]);
                self.last_datagram_at[to] = at;
            }
            let is_lost = random.random_bool(travel.loss) || at >= travel.blocked_at;
            self.lost += u64::from(is_lost);
            times.extend((!is_lost).then_some(at));
        }
        times
    }

    fn note(&mut self, header: &Header, timing: &Timing) {
        if let Message::Request(part) | Message::Chunk(part) = header.message {
            self.has_wrapped |= part.sequence.0 < 1 << 31;
        }
        match self.windows.on_sent(&header.message) {
            Some(InFlight::Segments(count)) => {
                // An aggregator does not wait for results that its members received by multicast: it
                // reuses the slot, which this side cannot see.
                let has_multicast = timing.datagrams.is_some_and(|travel| travel.has_multicast);
                let is_nodes = matches!(self.holders[LOWER], Holder::Node { .. });
                let max = if has_multicast && is_nodes { usize::MAX } else { self.osos };
                assert!(count <= max, "{count} segments in flight, {} granted", self.osos);
                self.peak_outstanding = self.peak_outstanding.max(count);
            }
            Some(InFlight::Chunks(count)) => {
                assert!(count <= self.window, "{count} chunks in flight, {} granted", self.window);
                self.peak_chunks = self.peak_chunks.max(count);
            }
            None => {}
        }
    }

    /// When an end learns that the other has closed: after everything that was sent before.
    pub(crate) fn closes_at(&mut self, to: usize, now: u64) -> u64 {
        self.last_at[to] = self.last_at[to].max(now) + 1;
        self.last_at[to]
    }

    /// The lower end has a result that came by multicast.
    pub(crate) fn on_multicast(&mut self, header: &Header) {
        self.windows.on_taken(&header.message);
    }

    /// A frame has arrived.
    pub(crate) fn on_arrived(&mut self, to: usize, carrier: Carrier, frame: &[u8]) {
        let (header, _) = frames::decode(frame).expect("machines send frames that decode");
        self.windows.on_taken(&header.message);
        if carrier == Carrier::Link {
            // A second copy doesn't take up room.
            self.in_flight[to] = self.in_flight[to].saturating_sub(1);
        }
    }
}
