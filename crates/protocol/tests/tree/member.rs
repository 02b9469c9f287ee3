//! A member: an endpoint, the application's vectors, and a script to run.

use std::num::NonZeroU16;

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, StartError};
use tributary_protocol::{Carrier, Reachability, Time};
use tributary_protocol_testing::Operations;
use tributary_wire::EndpointId;
use tributary_wire::frame::Abort;

use crate::plan::OperationPlan;

/// The UDP port of every process; the virtual links lead to the right end anyway.
pub(crate) const DATAGRAM_PORT: NonZeroU16 = NonZeroU16::new(7).unwrap();

pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    pub(crate) group: usize,
    pub(crate) index: u32,
    /// Its link, once it has connected.
    pub(crate) link: Option<usize>,
    /// Its script; a copy, so that a test can make it disagree.
    pub(crate) script: Vec<OperationPlan>,
    pub(crate) started: usize,
    /// Before which operation it pauses, and for how long.
    pub(crate) pause: Option<(usize, u64)>,
    /// Whether it leaves once its script is done.
    pub(crate) leaves: bool,
    pub(crate) has_left: bool,
    /// Whether it keeps its link when it has left, until it hears that all have.
    pub(crate) stays: bool,
    /// It has heard so.
    pub(crate) knows_end: bool,
    pub(crate) is_joined: bool,
    /// The last decision about datagrams.
    pub(crate) reachability: Option<Reachability>,
    /// Whether results reach it by multicast.
    pub(crate) is_subscribed: bool,
    /// The result of each completed operation; empty if the member receives none.
    pub(crate) results: Vec<Option<Vec<u8>>>,
    pub(crate) failed: Option<Abort>,
    running: Operations,
    /// Where results are written, for each operation that was started.
    targets: Vec<Vec<u8>>,
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
            running: Operations::new(config.endpoint, seed),
            endpoint: Endpoint::new(config),
            group,
            link: None,
            results: vec![None; script.len()],
            script,
            started: 0,
            pause: None,
            leaves: true,
            has_left: false,
            stays: false,
            knows_end: false,
            is_joined: false,
            reachability: None,
            is_subscribed: false,
            failed: None,
            targets: Vec::new(),
        }
    }

    /// Starts the next operation, if there is one and the endpoint takes it.
    pub(crate) fn start_next(&mut self) -> bool {
        let Some(plan) = self.script.get(self.started).copied() else { return false };
        let ready_bytes = plan.is_stream.then_some(usize::MAX);
        match self.running.start(&mut self.endpoint, self.started, plan, ready_bytes) {
            Ok(()) => {}
            Err(StartError::Busy { .. } | StartError::Failed(_) | StartError::Left) => {
                return false;
            }
            Err(other) => panic!("{plan:?} is an operation, but: {other}"),
        }
        let receives = plan.spec(EndpointId(self.index)).receives;
        self.targets.push(if receives { vec![0xA5; plan.len_bytes()] } else { Vec::new() });
        self.started += 1;
        true
    }

    pub(crate) fn is_done(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    /// The payload of a frame.
    pub(crate) fn payload(&self, transmit: &tributary_protocol::endpoint::Transmit) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.running.append_payload(transmit, &mut bytes);
        bytes
    }

    /// Takes one frame. `Err` means that the link ends.
    pub(crate) fn take(
        &mut self,
        now: Time,
        carrier: Carrier,
        header: &tributary_wire::frame::Header,
        payload: &[u8],
    ) -> Result<(), tributary_protocol::endpoint::FrameError> {
        if let Some(body) = self.endpoint.handle_frame(now, carrier, header)? {
            let operation = self.running.on_result(&body);
            self.targets[operation][body.bytes].copy_from_slice(payload);
        }
        Ok(())
    }

    /// Takes the endpoint's events. True if there were any.
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
                Event::Multicast(reachability) => {
                    self.is_subscribed = reachability == Reachability::Reachable
                }
                Event::Datagrams(reachability) => self.reachability = Some(reachability),
                Event::Completed(number) => {
                    let running = self.running.complete(number).expect("once, in order");
                    let need_bytes = running.need_bytes(EndpointId(self.index));
                    assert_eq!(running.got_bytes, need_bytes, "no more and no less");
                    let target = std::mem::take(&mut self.targets[running.operation]);
                    self.results[running.operation] = Some(target);
                }
                Event::Failed(abort) => {
                    assert!(self.failed.is_none() && !self.knows_end, "ends once");
                    // A member that has left and stays for nobody has no use for it.
                    self.failed = (!self.has_left || self.stays).then_some(abort);
                }
                Event::AllHaveLeft => {
                    assert!(self.failed.is_none() && !self.knows_end, "ends once");
                    self.knows_end = true;
                }
            }
        }
        has_news
    }
}
