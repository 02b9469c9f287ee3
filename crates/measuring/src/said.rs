//! What the measuring program said from its start to its end.

use std::collections::BTreeSet;

use tributary_report::Report;

use crate::case::Case;
use crate::lines::{Adapter, Done, Host, Line, Start};

/// What one start of the launcher gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(crate) start: Start,
    /// Of every case, the times of its blocks in microseconds.
    pub(crate) samples: Vec<Vec<f64>>,
    pub(crate) done: Vec<Done>,
    pub(crate) hosts: Vec<Host>,
    /// What the library reports, where it was there.
    pub report: Option<Report>,
}

/// Why what was said can't be used. The launcher's output is not whole, or another program ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no first line.
    #[error("its first line is missing; does another program run?")]
    NoStart,
    /// Ranks are not on any host.
    #[error("{found} of {expected} ranks are accounted for")]
    Ranks {
        /// Ranks on hosts.
        found: u64,
        /// Ranks that there are.
        expected: u64,
    },
    /// Times of a case are missing.
    #[error("{found} of {expected} times of {case} came")]
    Times {
        /// The case.
        case: String,
        /// Times that came.
        found: u64,
        /// Times that there have to be.
        expected: u64,
    },
    /// A case has a number that none has.
    #[error("case {0} came, which nobody asked for")]
    UnknownCase(usize),
}

/// What was said so far.
#[derive(Clone, Debug)]
pub struct Said {
    start: Option<Start>,
    samples: Vec<Vec<f64>>,
    done: Vec<Done>,
    hosts: Vec<Host>,
}

impl Outcome {
    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u64 {
        self.start.ranks
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Whether all hosts run on one kernel, as containers and labs do.
    #[must_use]
    pub fn is_one_kernel(&self) -> bool {
        let first = self.hosts.first().map_or("", |host| &host.boot);
        !first.is_empty() && self.hosts.iter().all(|host| host.boot == first)
    }

    /// The versions of the hosts' kernels, each once.
    #[must_use]
    pub fn kernels(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.hosts.iter().map(|host| &host.kernel).collect();
        all.into_iter().cloned().collect()
    }

    /// Of each host the adapter that carried most, each kind once: driver, speed and longest packet.
    #[must_use]
    pub fn adapters(&self) -> Vec<String> {
        let carried = |one: &&Adapter| one.sent_bytes + one.received_bytes;
        let busiest = self.hosts.iter().filter_map(|host| host.adapters.iter().max_by_key(carried));
        let described = busiest.map(|one| {
            let Adapter { driver, speed_mbps, mtu_bytes, .. } = one;
            let driver = if driver.is_empty() { "unknown" } else { driver };
            format!("{driver}, {speed_mbps} Mb/s, MTU {mtu_bytes}")
        });
        described.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What the MPI says about itself.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.start.library
    }
}

impl Said {
    /// Nothing, of some number of cases.
    #[must_use]
    pub fn nothing(cases: usize) -> Self {
        Self { start: None, samples: vec![Vec::new(); cases], done: Vec::new(), hosts: Vec::new() }
    }

    /// Takes a line. If it ends a case, returns the end, and the times of the case.
    ///
    /// # Errors
    /// If the line is about a case that is none.
    pub fn take(&mut self, line: Line) -> Result<Option<(Done, &[f64])>, Unusable> {
        match line {
            Line::Start(start) => self.start = Some(start),
            Line::Samples { case, us } => {
                self.samples.get_mut(case).ok_or(Unusable::UnknownCase(case))?.extend(us);
            }
            Line::Done(done) => {
                let times = self.samples.get(done.case).ok_or(Unusable::UnknownCase(done.case))?;
                self.done.push(done);
                return Ok(Some((done, times)));
            }
            Line::Host(host) => self.hosts.push(host),
        }
        Ok(None)
    }

    /// All that was said, if everything is there.
    ///
    /// # Errors
    /// If something of a case or of the ranks is missing.
    pub fn complete(self, cases: &[Case]) -> Result<Outcome, Unusable> {
        let Self { start, samples, done, hosts } = self;
        let start = start.ok_or(Unusable::NoStart)?;
        let found: u64 = hosts.iter().map(|host| host.ranks).sum();
        if found != start.ranks {
            return Err(Unusable::Ranks { found, expected: start.ranks });
        }
        for (number, case) in cases.iter().enumerate() {
            let (found, expected) = (samples[number].len() as u64, case.blocks);
            let is_done = done.get(number).is_some_and(|done| done.case == number);
            if found != expected || !is_done {
                return Err(Unusable::Times { case: case.word(), found, expected });
            }
        }
        Ok(Outcome { start, samples, done, hosts, report: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Collective;
    use crate::lines::read;

    const CASE: Case = Case {
        collective: Collective::Scan,
        nonblocking: false,
        in_place: false,
        size_bytes: 8,
        blocks: 2,
        warmup: 0,
        calls_min: 1,
    };

    /// What is said when these lines come.
    fn complete(lines: &[&str]) -> Result<Outcome, Unusable> {
        let mut said = Said::nothing(1);
        for line in lines {
            said.take(read(&format!("@tributary-bench {line}")).unwrap().unwrap())?;
        }
        said.complete(&[CASE])
    }

    #[test]
    fn what_is_missing_is_named() {
        let start = r#"{"start":{"ranks":1,"mpi_standard":"4.0","library":"an MPI"}}"#;
        let samples = r#"{"samples":{"case":0,"us":[1,2]}}"#;
        let done = r#"{"done":{"case":0,"bytes":8,"calls":1,"wrong":0,"checked":2}}"#;
        let host = r#"{"host":{"name":"a","ranks":1,"cores":1,"kernel":"6","rdma_ports":0,"adapters":[]}}"#;
        let whole = complete(&[start, samples, done, host]).unwrap();
        assert_eq!((whole.ranks(), whole.hosts(), whole.library()), (1, 1, "an MPI"));
        let failed = |lines: &[&str]| complete(lines).unwrap_err();
        assert_eq!(failed(&[samples, done, host]), Unusable::NoStart);
        assert_eq!(failed(&[start, samples, done]), Unusable::Ranks { found: 0, expected: 1 });
        let case = CASE.word();
        assert_eq!(
            failed(&[start, done, host]),
            Unusable::Times { case: case.clone(), found: 0, expected: 2 }
        );
        assert_eq!(
            failed(&[start, samples, host]),
            Unusable::Times { case, found: 2, expected: 2 }
        );
        assert_eq!(
            failed(&[start, &samples.replace("0,\"us", "7,\"us")]),
            Unusable::UnknownCase(7)
        );
    }
}
