//! A member: an endpoint, the application's vectors, and a script to run.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, StartError};
use tributary_protocol::{Carrier, Reach, Time};
use tributary_wire::frame::Abort;
use tributary_wire::{EndpointId, OperationNumber};

use crate::plan::{OperationPlan, contribution};

/// Everybody's: the virtual links lead to the right end anyway.
pub(crate) const DATAGRAM_PORT: NonZeroU16 = NonZeroU16::new(7).unwrap();

pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    pub(crate) group: usize,
    pub(crate) index: u32,
    /// Which link it holds, once it has connected.
    pub(crate) link: Option<usize>,
    /// What it will do; a copy, so that a test can make it disagree.
    pub(crate) script: Vec<OperationPlan>,
    pub(crate) started: usize,
    /// Before which operation it pauses, and how long.
    pub(crate) pause: Option<(usize, u64)>,
    /// Whether it leaves once its script is done.
    pub(crate) leaves: bool,
    pub(crate) has_left: bool,
    pub(crate) is_joined: bool,
    /// What became of datagrams.
    pub(crate) reach: Option<Reach>,
    /// Whether it hears multicast.
    pub(crate) hears: bool,
    /// What each completed operation left in its target; empty where it receives nothing.
    pub(crate) results: Vec<Option<Vec<u8>>>,
    pub(crate) failed: Option<Abort>,
    running: BTreeMap<OperationNumber, Running>,
    seed: u64,
}

struct Running {
    operation: usize,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Member {
    pub(crate) fn new(
        config: EndpointConfig,
        group: usize,
        script: Vec<OperationPlan>,
        seed: u64,
    ) -> Self {
        Self {
            index: config.endpoint.0,
            endpoint: Endpoint::new(config),
            group,
            link: None,
            results: vec![None; script.len()],
            script,
            started: 0,
            pause: None,
            leaves: true,
            has_left: false,
            is_joined: false,
            reach: None,
            hears: false,
            failed: None,
            running: BTreeMap::new(),
            seed,
        }
    }

    /// Starts the next operation, if there is one and the endpoint takes it.
    pub(crate) fn start_next(&mut self) -> bool {
        let Some(plan) = self.script.get(self.started).copied() else { return false };
        let spec = plan.spec(EndpointId(self.index));
        let started = if plan.is_stream {
            self.endpoint.start_stream(spec, usize::MAX)
        } else {
            self.endpoint.start(spec)
        };
        let number = match started {
            Ok(number) => number,
            Err(StartError::Busy { .. } | StartError::Failed(_) | StartError::Left) => {
                return false;
            }
            Err(other) => panic!("{plan:?} is an operation, but: {other}"),
        };
        let source = if spec.contributes {
            contribution(&plan, self.seed, self.started, self.index)
        } else {
            Vec::new()
        };
        let target = if spec.receives { vec![0xA5; plan.len_bytes()] } else { Vec::new() };
        self.running.insert(number, Running { operation: self.started, source, target });
        self.started += 1;
        true
    }

    pub(crate) fn is_done(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    /// The bytes that follow the header in a frame.
    pub(crate) fn payload(&self, transmit: &tributary_protocol::endpoint::Transmit) -> Vec<u8> {
        let Some(body) = &transmit.body else { return Vec::new() };
        self.running[&body.operation].source[body.bytes.clone()].to_vec()
    }

    /// Takes one frame. `Err` stands for the link's end.
    pub(crate) fn take(
        &mut self,
        now: Time,
        carrier: Carrier,
        header: &tributary_wire::frame::Header,
        payload: &[u8],
    ) -> Result<(), tributary_protocol::endpoint::FrameError> {
        if let Some(body) = self.endpoint.handle_frame(now, carrier, header)? {
            let running =
                self.running.get_mut(&body.operation).expect("results are for the living");
            running.target[body.bytes].copy_from_slice(payload);
        }
        Ok(())
    }

    /// Takes in what the endpoint has to say; true if something came of it.
    pub(crate) fn drain_events(&mut self) -> bool {
        let mut has_news = false;
        while let Some(event) = self.endpoint.poll_event() {
            has_news = true;
            match event {
                Event::Joined => {
                    assert!(!self.is_joined, "joined once");
                    self.is_joined = true;
                }
                Event::DatagramPeer(port) => assert_eq!(port, DATAGRAM_PORT),
                Event::Multicast(reach) => self.hears = reach == Reach::Open,
                Event::Datagrams(reach) => self.reach = Some(reach),
                Event::Completed(number) => {
                    let running = self.running.remove(&number).expect("completes once");
                    self.results[running.operation] = Some(running.target);
                }
                Event::Failed(abort) => {
                    assert!(self.failed.is_none(), "fails once");
                    self.failed = Some(abort);
                }
            }
        }
        has_news
    }
}
