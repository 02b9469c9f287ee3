//! The switch's process: it waits for frames and for deadlines, and answers those who ask for its counts.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::counts::{Lengths, SwitchCounts};
use super::ports::{self, Port};
use super::processor;
use super::queues::{Queues, Rules};
use crate::channel;
use crate::directory::{Directory, LabConfig};
use crate::messages::Failure;
use crate::namespaces::{StepError, step};
use crate::plan::Plan;

/// Frames taken from one port before others, and deadlines, have their turn.
const FRAMES_PER_TURN: usize = 16;

/// Places that become readable at once: as many as a lab has members, and one for those who ask.
const EVENTS_MAX: usize = 256;

/// The listener's place among the ports.
const LISTENER: u64 = u64::MAX;

/// How much earlier than a deadline the switch wakes at most.
const AHEAD_MAX_NS: u64 = 50_000;

/// How late timers wake this process as a rule, some 30 us in a virtual machine, so that it asks for that much earlier. It
/// waits out the rest awake.
#[derive(Default)]
struct Alarm {
    smoothed_ns: u64,
}

impl Alarm {
    /// How much earlier to ask.
    fn ahead_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// Notes how late one was. What is rare, such as a busy kernel, counts as the most only.
    fn note(&mut self, late_ns: u64) {
        self.smoothed_ns = (self.smoothed_ns * 15 + late_ns.min(AHEAD_MAX_NS)) / 16;
    }
}

struct Switch {
    names: Vec<String>,
    ports: Vec<Port>,
    queues: Queues,
    late: Lengths,
    alarm: Alarm,
    started: Instant,
    without_priority: Option<String>,
}

/// Runs the switch for as long as the lab lives: it is a child of the supervisor, and the kernel ends it with that.
/// `processes` has the process of each of the plan's speakers. Reports to `supervisor` when all ports are there.
pub(crate) fn run(
    directory: &Directory,
    config: &LabConfig,
    processes: &[i32],
    supervisor: UnixStream,
) -> Result<(), Failure> {
    let made = prepare(directory, config, processes).map_err(Failure::from);
    let outcome = made.as_ref().map(|_| ()).map_err(Clone::clone);
    channel::send(&supervisor, &outcome).map_err(step("report to the supervisor"))?;
    drop(supervisor);
    let (mut switch, listener) = made?;
    switch.carry(&listener).map_err(|error| step("the switch's loop")(error).into())
}

fn prepare(
    directory: &Directory,
    config: &LabConfig,
    processes: &[i32],
) -> Result<(Switch, UnixListener), StepError> {
    let ports = ports::make(processes)?;
    let listener =
        UnixListener::bind(directory.switch_socket()).map_err(step("the switch's socket"))?;
    let scheduling = directory.read_scheduling().map_err(step("scheduling.json"))?;
    let without_priority = processor::take_priority(&scheduling).err();
    processor::wake_in_time();
    let plan = &config.plan;
    let switch = Switch {
        names: plan.speakers().map(|member| member.name.clone()).collect(),
        ports,
        queues: Queues::new(rules(plan), seed()),
        late: Lengths::default(),
        alarm: Alarm::default(),
        started: Instant::now(),
        without_priority: without_priority.map(|error| error.to_string()),
    };
    Ok((switch, listener))
}

fn rules(plan: &Plan) -> Rules {
    let hold = |source| plan.speakers().map(|target| plan.hold_ns(source, target)).collect();
    Rules {
        holds_ns: plan.speakers().map(hold).collect(),
        addresses: plan.speakers().filter_map(|member| member.hardware_address()).collect(),
        jitter_ns: plan.links.jitter.nanoseconds(),
        rate_bits_per_s: plan.links.rate.map(|rate| rate.bits_per_s()),
        loss_ppm: plan.links.loss.parts_per_million(),
        blocks_multicast: plan.links.blocks_multicast,
    }
}

/// Different in every lab: each is to lose other packets.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

impl Switch {
    fn carry(&mut self, listener: &UnixListener) -> io::Result<()> {
        let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        for (port, it) in self.ports.iter().enumerate() {
            epoll::add(&waiting, it, epoll::EventData::new_u64(port as u64), readable)?;
        }
        epoll::add(&waiting, listener, epoll::EventData::new_u64(LISTENER), readable)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut buffer = ports::buffer();
        loop {
            let due_ns = self.queues.poll_timeout();
            let wake_ns = due_ns.map(|due_ns| due_ns.saturating_sub(self.alarm.ahead_ns()));
            let limit = wake_ns.map(|wake_ns| timespec(wake_ns.saturating_sub(self.now_ns())));
            wait(&waiting, limit.as_ref(), &mut events)?;
            if let (true, Some(wake_ns), Some(due_ns)) = (events.is_empty(), wake_ns, due_ns) {
                self.alarm.note(self.now_ns().saturating_sub(wake_ns));
                while self.now_ns() < due_ns.min(wake_ns + AHEAD_MAX_NS) {
                    std::hint::spin_loop();
                }
            }
            self.send_due();
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.answer(listener),
                    port => self.take(port as usize, &mut buffer)?,
                }
                self.send_due();
            }
        }
    }

    /// Takes what a member has sent.
    fn take(&mut self, port: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..FRAMES_PER_TURN {
            let Some(length) = self.ports[port].read(buffer)? else { break };
            self.queues.handle_frame(self.now_ns(), port, &buffer[..length]);
        }
        Ok(())
    }

    fn send_due(&mut self) {
        loop {
            let now_ns = self.now_ns();
            let Some(departure) = self.queues.poll_departure(now_ns) else { return };
            self.late.count(now_ns - departure.due_ns);
            let is_taken = self.ports[departure.port].write(&departure.frame).is_ok();
            self.queues.on_sent(departure.port, is_taken);
        }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Tells the counts to who has connected. It must read fast, or it gets a part: frames do not wait for it.
    fn answer(&self, listener: &UnixListener) {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let Ok(text) = serde_json::to_vec(&self.counts()) else { return };
        if stream.set_nonblocking(true).is_ok() {
            let _ = stream.write_all(&text);
        }
    }

    fn counts(&self) -> SwitchCounts {
        let mut counts: Vec<_> =
            self.names.iter().cloned().zip(self.queues.counts().copied()).collect();
        for ((_, counts), port) in counts.iter_mut().zip(&self.ports) {
            counts.unread = port.unread();
        }
        SwitchCounts {
            without_priority: self.without_priority.clone(),
            ports: counts,
            late: self.late.clone(),
            elapsed_ns: self.now_ns(),
            switch_ns: processor::own_ns(),
            lab_ns: processor::all_ns(),
        }
    }
}

/// Waits for events, for at most `limit`. By `poll`, because a wait for events (`epoll_wait`) takes milliseconds as its limit.
fn wait(
    waiting: &OwnedFd,
    limit: Option<&Timespec>,
    events: &mut Vec<epoll::Event>,
) -> io::Result<()> {
    events.clear();
    let seen = poll(&mut [PollFd::new(waiting, PollFlags::IN)], limit).and_then(|_| {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(waiting, rustix::buffer::spare_capacity(events), Some(&at_once))
    });
    match seen {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(length_ns: u64) -> Timespec {
    Timespec {
        tv_sec: (length_ns / 1_000_000_000) as i64,
        tv_nsec: (length_ns % 1_000_000_000) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_follow_the_usual_lateness_within_bounds() {
        let mut alarm = Alarm::default();
        (0..200).for_each(|_| alarm.note(30_000));
        assert!((29_900..=30_000).contains(&alarm.ahead_ns()), "{}", alarm.ahead_ns());
        alarm.note(9_000_000);
        assert!(alarm.ahead_ns() < 32_000);
        (0..200).for_each(|_| alarm.note(9_000_000));
        assert!(alarm.ahead_ns() <= AHEAD_MAX_NS);
    }
}
