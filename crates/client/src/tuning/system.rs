//! What system calls and switches between processes cost on this machine, each measured alone.
//!
//! Two processes exchange short frames over a TCP link of the product's: both on one core, giving way
//! to each other or sleeping; then on two. What one way has more than another is the call in which
//! they differ. The simulator adds these up again (`tributary sim predict`). Nothing here runs a
//! collective.

mod cores;
mod partner;

use std::hint::black_box;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};
use tributary_transport::{TcpAcceptor, connect_tcp};

use super::measure::{MeasureError, frame};
use super::median;
use cores::pin;
pub use cores::{keep_to_cores, on_cores};
use partner::{End, TIMEOUT, accept, options};
pub use partner::{Partner, PartnerWaits};

/// Round trips of one sample: some 100 us, so that most samples are not interrupted.
const ROUNDS: u32 = 16;
/// Samples of each figure; the middle one counts, as of the operations that are predicted from them.
const SAMPLES: usize = 200;
/// The longer frame: a page, as long as segments often are.
const LONGER_BYTES: usize = 4 << 10;
/// Partners that share a core with this process where caches are shared by many.
const CROWD: usize = 7;
const SHORT_BYTES: usize = 8;

/// What each kind of system call takes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemCosts {
    /// Cores that this process may run on.
    pub cores: u32,
    /// Sending a short frame over TCP to a process that is awake.
    pub send_ns: f64,
    /// Each byte of a frame more.
    pub send_ns_per_byte: f64,
    /// Reading a frame that is there, sent on the same core.
    pub receive_ns: f64,
    /// Each byte of a frame more.
    pub receive_ns_per_byte: f64,
    /// Reading where nothing is.
    pub miss_ns: f64,
    /// More for a frame that was sent on another core.
    pub remote_ns: f64,
    /// `sched_yield` where nobody else is ready.
    pub give_way_ns: f64,
    /// From one process to another on one core, both of which find nothing to do.
    pub switch_ns: f64,
    /// More for each side of an exchange between two processes that share a core: caches.
    pub cold_ns: f64,
    /// More than that for each further process that had the core in between.
    pub crowd_ns: f64,
    /// `poll` of a descriptor, without sleeping.
    pub wait_ns: f64,
    /// More for a frame to a process that sleeps: putting it to sleep and waking it.
    pub wake_ns: f64,
    /// From the frame to the process's first instruction, if it slept on an idle core.
    pub wake_idle_ns: f64,
}

impl SystemCosts {
    /// All figures.
    pub(super) fn values(self) -> impl Iterator<Item = f64> {
        let Self { send_ns, send_ns_per_byte, receive_ns, receive_ns_per_byte, .. } = self;
        let Self { miss_ns, remote_ns, give_way_ns, switch_ns, cold_ns, .. } = self;
        let Self { crowd_ns, wait_ns, wake_ns, wake_idle_ns, .. } = self;
        let calls = [send_ns, send_ns_per_byte, receive_ns, receive_ns_per_byte, miss_ns];
        let switches = [remote_ns, give_way_ns, switch_ns, cold_ns, crowd_ns];
        calls.into_iter().chain(switches).chain([wait_ns, wake_ns, wake_idle_ns])
    }

    /// Of each figure the middle one.
    ///
    /// # Panics
    /// If nothing was measured.
    pub(super) fn middle(measured: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(measured.iter().map(figure).collect());
        Self {
            cores: measured[0].cores,
            send_ns: of(|costs| costs.send_ns),
            send_ns_per_byte: of(|costs| costs.send_ns_per_byte),
            receive_ns: of(|costs| costs.receive_ns),
            receive_ns_per_byte: of(|costs| costs.receive_ns_per_byte),
            miss_ns: of(|costs| costs.miss_ns),
            remote_ns: of(|costs| costs.remote_ns),
            give_way_ns: of(|costs| costs.give_way_ns),
            switch_ns: of(|costs| costs.switch_ns),
            cold_ns: of(|costs| costs.cold_ns),
            crowd_ns: of(|costs| costs.crowd_ns),
            wait_ns: of(|costs| costs.wait_ns),
            wake_ns: of(|costs| costs.wake_ns),
            wake_idle_ns: of(|costs| costs.wake_idle_ns),
        }
    }
}

/// Measures all of it over this host's `address`. `spawn` starts a process that runs a [`Partner`].
///
/// # Errors
/// If links, partners or cores can't be had.
pub fn measure_system(
    address: IpAddr,
    spawn: &mut dyn FnMut(&Partner) -> io::Result<Child>,
) -> Result<SystemCosts, MeasureError> {
    let granted = sched_getaffinity(None).map_err(|error| failed("cores")(&error))?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| granted.is_set(core)).collect();
    on_cores(cores.len(), || Bench { address, spawn, cores: &cores }.measure())?
}

/// What may go wrong, all alike: the measurement is off.
fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> MeasureError {
    move |error| MeasureError(format!("{what}: {error}"))
}

struct Bench<'a> {
    address: IpAddr,
    spawn: &'a mut dyn FnMut(&Partner) -> io::Result<Child>,
    cores: &'a [usize],
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<SystemCosts, MeasureError> {
        let here = *self.cores.first().ok_or_else(|| MeasureError("no core".to_owned()))?;
        pin(here)?;
        let busy = self.keep_others_busy()?;
        let Calls { send_ns, receive_ns, miss_ns, wait_ns } = self.calls(SHORT_BYTES)?;
        let longer = self.calls(LONGER_BYTES)?;
        let more_bytes = (LONGER_BYTES - SHORT_BYTES) as f64;
        let give_way_ns = median((0..SAMPLES).map(|_| yield_ns(1)).collect());
        let turn_ns = self.turn_ns(here)?;
        let switch_ns = (turn_ns - miss_ns - give_way_ns).max(0.0);
        let exchange_ns = send_ns + receive_ns;
        let yielding_ns = self.half_round_ns(here, [PartnerWaits::Yielding; 2], SHORT_BYTES)?;
        let longer_ns = self.half_round_ns(here, [PartnerWaits::Yielding; 2], LONGER_BYTES)?;
        // Only one of the two frames of a round is longer. Of what it takes more with caches that are
        // shared, which is no less than what it takes one process alone, sending and receiving have the
        // shares that they have there.
        let send_more_ns = (longer.send_ns - send_ns).max(0.0);
        let receive_more_ns = (longer.receive_ns - receive_ns).max(0.0);
        let more_ns = (2.0 * (longer_ns - yielding_ns)).max(send_more_ns + receive_more_ns);
        let byte_ns = more_ns / more_bytes;
        let send_share = send_more_ns / (send_more_ns + receive_more_ns).max(1.0);
        let cold_ns = (yielding_ns - exchange_ns - miss_ns - give_way_ns - switch_ns).max(0.0);
        let sleeping_ns = self.half_round_ns(here, [PartnerWaits::Sleeping; 2], SHORT_BYTES)?;
        // Of a round in the crowd, the partner's half is what more caches have been used before.
        let crowded_ns = self.crowded_half_round_ns(here)?;
        let crowd_ns = (2.0 * (crowded_ns - sleeping_ns) / (CROWD - 1) as f64).max(0.0);
        let wake_ns =
            (sleeping_ns - exchange_ns - miss_ns - wait_ns - switch_ns - cold_ns).max(0.0);
        drop(busy);
        let (remote_ns, wake_idle_ns) = match self.cores.get(1) {
            Some(&there) => {
                let look_ns = (miss_ns + give_way_ns) / 2.0;
                let apart_ns =
                    self.half_round_ns(there, [PartnerWaits::Yielding; 2], SHORT_BYTES)?;
                let remote_ns = (apart_ns - exchange_ns - look_ns).max(0.0);
                let waits = [PartnerWaits::Yielding, PartnerWaits::Sleeping];
                let idle_ns = self.half_round_ns(there, waits, SHORT_BYTES)?;
                // Only one of the two sides sleeps.
                let more_ns = 2.0 * (idle_ns - apart_ns) + look_ns - wake_ns;
                (remote_ns, more_ns.max(0.0))
            }
            // With one core no frame comes from another, and a core that sleeps has nobody to wake it.
            None => (0.0, 0.0),
        };
        Ok(SystemCosts {
            cores: self.cores.len() as u32,
            send_ns,
            send_ns_per_byte: byte_ns * send_share,
            receive_ns,
            receive_ns_per_byte: byte_ns * (1.0 - send_share),
            miss_ns,
            remote_ns,
            give_way_ns,
            switch_ns,
            cold_ns,
            crowd_ns,
            wait_ns,
            wake_ns,
            wake_idle_ns,
        })
    }

    /// A process that looks and gives way on every core but the first: where operations run no core
    /// is idle, and two that are threads of one physical core slow each other down.
    fn keep_others_busy(&mut self) -> Result<Vec<Met>, MeasureError> {
        let others = self.cores.get(1..).unwrap_or_default();
        others.iter().map(|&core| self.meet(core, PartnerWaits::Yielding)).collect()
    }

    fn bind(&self) -> Result<TcpAcceptor, MeasureError> {
        let bound = TcpAcceptor::bind(SocketAddr::new(self.address, 0), options());
        bound.map_err(|error| failed("a listener")(&error))
    }

    /// Single calls: both ends are this process's.
    fn calls(&self, payload_bytes: usize) -> Result<Calls, MeasureError> {
        let mut acceptor = self.bind()?;
        let address = acceptor.address().map_err(|error| failed("a listener")(&error))?;
        let link = connect_tcp(address, options(), TIMEOUT);
        let mut source = End::new(link.map_err(|error| failed("a link")(&error))?);
        let mut target = End::new(accept(&mut acceptor)?);
        let (header, payload) = frame(payload_bytes);
        let clock_ns = median((0..SAMPLES).map(|_| elapsed_ns(|| ())).collect());
        let mut samples = [const { Vec::new() }; 4];
        for _ in 0..SAMPLES * ROUNDS as usize {
            // There and back: a frame takes the confirmation of the one before it along, as where
            // requests and results alternate.
            let mut fault = None;
            let times = [
                elapsed_ns(|| fault = source.send(&header, &payload).err()),
                elapsed_ns(|| drop(black_box(target.look()))),
                elapsed_ns(|| drop(black_box(target.look()))),
                elapsed_ns(|| target.poll_now()),
            ];
            std::mem::swap(&mut source, &mut target);
            if let Some(fault) = fault {
                return Err(fault);
            }
            for (own, time) in samples.iter_mut().zip(times) {
                own.push((time - clock_ns).max(0.0));
            }
        }
        let [send_ns, receive_ns, miss_ns, wait_ns] = samples.map(median);
        Ok(Calls { send_ns, receive_ns, miss_ns, wait_ns })
    }

    /// A turn of a process that finds nothing and gives way to another that does the same: a look,
    /// and the switch.
    fn turn_ns(&mut self, core: usize) -> Result<f64, MeasureError> {
        let mut met = self.meet(core, PartnerWaits::Yielding)?;
        let mut samples = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let before = switches();
            let begun = Instant::now();
            for _ in 0..ROUNDS {
                if met.end.look()? {
                    return Err(MeasureError("the partner spoke out of turn".to_owned()));
                }
                std::thread::yield_now();
            }
            let elapsed_ns = begun.elapsed().as_nanos() as f64;
            // A yield that did not switch is no turn of both.
            if switches() - before >= u64::from(ROUNDS) {
                samples.push(elapsed_ns / f64::from(2 * ROUNDS));
            }
        }
        if samples.is_empty() {
            return Err(MeasureError("no process of this core ever gave way".to_owned()));
        }
        Ok(median(samples))
    }

    /// Half a round trip to a partner on `core`: how this process and the partner wait, and the payload
    /// that goes there. A short one comes back.
    fn half_round_ns(
        &mut self,
        core: usize,
        [waits, partner_waits]: [PartnerWaits; 2],
        payload_bytes: usize,
    ) -> Result<f64, MeasureError> {
        let met = self.meet(core, partner_waits)?;
        half_rounds_ns(&mut [met], waits, payload_bytes)
    }

    /// The same with many partners of one core in turn, all of which sleep: before its turn comes again,
    /// all others have used the caches.
    fn crowded_half_round_ns(&mut self, core: usize) -> Result<f64, MeasureError> {
        let meet = |_| self.meet(core, PartnerWaits::Sleeping);
        let mut met = (0..CROWD).map(meet).collect::<Result<Vec<_>, _>>()?;
        half_rounds_ns(&mut met, PartnerWaits::Sleeping, SHORT_BYTES)
    }

    /// Starts a partner and takes its link.
    fn meet(&mut self, core: usize, waits: PartnerWaits) -> Result<Met, MeasureError> {
        let mut acceptor = self.bind()?;
        let address = acceptor.address().map_err(|error| failed("a listener")(&error))?;
        let partner = Partner { address, core, waits };
        let process = (self.spawn)(&partner).map_err(|error| failed("a partner")(&error))?;
        let process = Reaped(process);
        Ok(Met { end: End::new(accept(&mut acceptor)?), _process: process })
    }
}

/// What single calls take.
struct Calls {
    send_ns: f64,
    receive_ns: f64,
    miss_ns: f64,
    wait_ns: f64,
}

/// A partner at work. Its link goes first, and it ends by that.
struct Met {
    end: End,
    _process: Reaped,
}

/// Half a round trip to partners in turn, the middle one of the samples.
fn half_rounds_ns(
    partners: &mut [Met],
    waits: PartnerWaits,
    payload_bytes: usize,
) -> Result<f64, MeasureError> {
    let (header, payload) = frame(payload_bytes);
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        for round in 0..ROUNDS as usize {
            let end = &mut partners[round % partners.len()].end;
            end.send(&header, &payload)?;
            end.receive(waits)?;
        }
        samples.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS));
    }
    Ok(median(samples))
}

struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It is gone already, or ends now: nothing of it is awaited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `sched_yield`s in a row, each.
fn yield_ns(count: u32) -> f64 {
    let count = count * ROUNDS;
    let begun = Instant::now();
    for _ in 0..count {
        std::thread::yield_now();
    }
    begun.elapsed().as_nanos() as f64 / f64::from(count)
}

fn elapsed_ns(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

/// How often the kernel has taken the core from this process, wished for or not.
fn switches() -> u64 {
    let usage = thread_usage();
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0)
}

fn thread_usage() -> libc::rusage {
    // SAFETY: all zeros is a value of a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure to a place that holds one.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(outcome, 0, "the kernel knows this thread");
    usage
}
