//! Checks what the links of a lab with delay do: times of frames one way, loss at each receiver, and order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use serde::Serialize;

use crate::lab::Lab;
use crate::plan::{Member, Role};
use crate::probe::{Arrivals, GROUP, Noted, Probe, Sending};
use crate::session::{ExecError, Request, Session};
use crate::switch::{self, AskError, SwitchCounts};

/// From one delivery to the next. A delivery takes some 15 us of a processor, so the cores idle most of the time.
const DELIVERY_NS: u64 = 40_000;

/// Bits of a probing frame on a wire, and of three more that may go by another way at the same time.
const SPACED_BITS: u64 = 4 * 8 * 130;

/// How long frames may be under way beside their delay.
const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// Standard deviations that a loss may be away from what was asked for: one of two million is.
const DEVIATIONS_MAX: f64 = 5.0;

/// Why a lab was not checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Its frames are not held.
    #[error(
        "the lab has no delay that could be checked; `tributary lab up --delay` makes one that has"
    )]
    NoDelay,
    /// There is nobody to send to.
    #[error("a lab of one host has no way to check")]
    OneHost,
    /// A probing process did not start.
    #[error("a probing process did not start")]
    Start(#[from] ExecError),
    /// A probing process failed.
    #[error("the probing process on {member} ended without an answer")]
    Probe {
        /// Where.
        member: String,
    },
    /// The switch did not answer.
    #[error(transparent)]
    Switch(#[from] AskError),
    /// The system refused something else.
    #[error("a pipe to the probing processes")]
    System(#[from] io::Error),
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The host that sent.
    pub source: String,
    /// Frames sent to each receiver, and as many to all at once.
    pub frames: u32,
    /// What each receiver noted.
    pub flows: Vec<FlowFindings>,
    /// What the switch did meanwhile.
    pub switch: SwitchCounts,
}

/// What one receiver noted of one flow, beside what was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct FlowFindings {
    /// The receiver.
    pub receiver: String,
    /// Whether the frames were for all receivers.
    pub is_multicast: bool,
    /// How long a frame was to take at least, and how much longer at most.
    pub hold_ns: u64,
    /// See `hold_ns`.
    pub jitter_ns: u64,
    /// The share that was to be lost, in parts of a million.
    pub loss_ppm: u32,
    /// What arrived.
    pub arrivals: Arrivals,
    /// What is wrong with it.
    pub faults: Vec<String>,
}

/// Sends `frames` frames from the first host to each other host, and as many to all of them.
///
/// # Errors
/// If they could not be sent.
pub fn check(lab: &Lab, frames: u32) -> Result<Findings, CheckError> {
    if !lab.plan().links.has_delay() {
        return Err(CheckError::NoDelay);
    }
    let mut hosts = lab.plan().members_of(Role::Host);
    let source = hosts.next().expect("a lab has hosts");
    let receivers: Vec<&Member> = hosts.collect();
    if receivers.is_empty() {
        return Err(CheckError::OneHost);
    }
    let before = switch::ask(lab.directory())?;
    let running: Vec<Receiver> =
        receivers.iter().map(|host| Receiver::start(lab, host)).collect::<Result<_, _>>()?;
    let addresses = receivers.iter().filter_map(|host| host.address).collect();
    send(lab, source, addresses, frames)?;
    if !lab.plan().links.blocks_multicast {
        send(lab, source, vec![GROUP], frames)?;
    }
    let mut flows = Vec::new();
    for (host, receiver) in receivers.iter().zip(running) {
        let noted = receiver.finish()?;
        flows.push(judge_flow(lab, (source, host), false, noted.alone, frames));
        if !lab.plan().links.blocks_multicast {
            flows.push(judge_flow(lab, (source, host), true, noted.group, frames));
        }
    }
    let switch = switch::ask(lab.directory())?.since(&before);
    Ok(Findings { source: source.name.clone(), frames, flows, switch })
}

/// A receiving process, which ends when `input` is dropped.
struct Receiver {
    member: String,
    session: Session,
    input: PipeWriter,
    output: BufReader<PipeReader>,
}

impl Receiver {
    fn start(lab: &Lab, host: &Member) -> Result<Self, CheckError> {
        let (their_input, input) = io::pipe()?;
        let (output, their_output) = io::pipe()?;
        let errors = File::options().write(true).open("/dev/null")?;
        let descriptors = [their_input.as_fd(), their_output.as_fd(), errors.as_fd()];
        let session = lab.start(&host.name, request(lab, &Probe::Receive)?, descriptors)?;
        drop((their_input, their_output));
        let member = host.name.clone();
        let mut receiver = Self { member, session, input, output: BufReader::new(output) };
        match receiver.line()?.as_str() {
            "ready" => Ok(receiver),
            _ => Err(CheckError::Probe { member: receiver.member }),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn finish(mut self) -> Result<Noted, CheckError> {
        drop(std::mem::replace(&mut self.input, io::pipe()?.1));
        let text = self.line()?;
        // Its answer says how it ended.
        let _ = self.session.wait();
        serde_json::from_str(&text).map_err(|_| CheckError::Probe { member: self.member })
    }
}

/// Sends frames to each target in turn, and waits until they are there.
fn send(lab: &Lab, source: &Member, targets: Vec<Ipv4Addr>, frames: u32) -> Result<(), CheckError> {
    let links = &lab.plan().links;
    let deliveries = if targets == [GROUP] { lab.plan().speakers().count() as u64 } else { 1 };
    let spacing_ns = links.rate.map_or(0, |rate| SPACED_BITS * 1_000_000_000 / rate.bits_per_s());
    let interval_ns = (deliveries * DELIVERY_NS).max(spacing_ns);
    let sending = Probe::Send(Sending { targets, frames, interval_ns });
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let descriptors = [nothing.as_fd(), nothing.as_fd(), nothing.as_fd()];
    let session = lab.start(&source.name, request(lab, &sending)?, descriptors)?;
    if !session.wait().is_ok_and(|status| status.success()) {
        return Err(CheckError::Probe { member: source.name.clone() });
    }
    let longest_ns = [links.delay.unwrap_or_default(), links.spine_delay, links.jitter]
        .map(|delay| delay.nanoseconds())
        .iter()
        .sum();
    std::thread::sleep(Duration::from_nanos(longest_ns) + SETTLED_AFTER);
    Ok(())
}

fn request(lab: &Lab, probe: &Probe) -> io::Result<Request> {
    let words: [OsString; 3] = [
        lab.config().program.clone().into(),
        "lab-probe".into(),
        serde_json::to_string(probe)?.into(),
    ];
    Ok(Request::here(words.into()))
}

fn judge_flow(
    lab: &Lab,
    (source, target): (&Member, &Member),
    is_multicast: bool,
    arrivals: Arrivals,
    frames: u32,
) -> FlowFindings {
    let links = &lab.plan().links;
    let mut findings = FlowFindings {
        receiver: target.name.clone(),
        is_multicast,
        hold_ns: lab.plan().hold_ns(source, target),
        jitter_ns: links.jitter.nanoseconds(),
        loss_ppm: links.loss.parts_per_million(),
        arrivals,
        faults: Vec::new(),
    };
    findings.faults = faults(&findings, frames);
    findings
}

/// What is wrong with a flow. A way that is too long is none: processors that are busy may cause it, and it is shown.
fn faults(flow: &FlowFindings, frames: u32) -> Vec<String> {
    let mut faults = Vec::new();
    let Arrivals { received, disordered, ways_ns: [shortest_ns, ..] } = flow.arrivals;
    if disordered > 0 {
        faults.push(format!("{disordered} frames out of order"));
    }
    if received > 0 && shortest_ns < flow.hold_ns as i64 {
        faults.push(format!("a frame {} ns too early", flow.hold_ns as i64 - shortest_ns));
    }
    let share = f64::from(flow.loss_ppm) / 1e6;
    let (count, lost) = (f64::from(frames), f64::from(frames) - f64::from(received));
    let deviation = (count * share * (1.0 - share)).sqrt();
    if (lost - count * share).abs() > DEVIATIONS_MAX * deviation {
        faults.push(format!("{lost} of {frames} frames lost, {:.0} asked for", count * share));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(received: u32, disordered: u32, shortest_ns: i64, loss_ppm: u32) -> FlowFindings {
        FlowFindings {
            receiver: "h1".to_owned(),
            is_multicast: false,
            hold_ns: 1_000,
            jitter_ns: 0,
            loss_ppm,
            arrivals: Arrivals { received, disordered, ways_ns: [shortest_ns, 0, 0, 0] },
            faults: Vec::new(),
        }
    }

    #[test]
    fn frames_out_of_order_too_early_or_lost_are_faults() {
        let count = |flow: FlowFindings| faults(&flow, 10_000).len();
        assert_eq!(count(flow(10_000, 0, 1_000, 0)), 0);
        assert_eq!(count(flow(10_000, 1, 1_000, 0)), 1);
        assert_eq!(count(flow(10_000, 0, 999, 0)), 1);
        assert_eq!(count(flow(9_999, 0, 1_000, 0)), 1);
        // One in a hundred, and five deviations of 9.95.
        assert_eq!(count(flow(9_900, 0, 1_000, 10_000)), 0);
        assert_eq!(count(flow(9_851, 0, 1_000, 10_000)), 0);
        assert_eq!(count(flow(9_850, 0, 1_000, 10_000)), 1);
        assert_eq!(count(flow(10_000, 0, 1_000, 10_000)), 1);
        assert_eq!(faults(&flow(0, 0, 0, 0), 10), ["10 of 10 frames lost, 0 asked for"]);
    }
}
