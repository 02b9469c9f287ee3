//! Which of this machine's cores each member of a lab has.
//!
//! A lab on a machine with many cores can give every host cores of its own. Then what a host sends, receives and
//! computes takes its own time, and hosts work side by side, as on a cluster.

use std::fmt::Write as _;
use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::plan::{Member, Plan, Role};

/// Bits in one group of a processor mask in sysfs.
const MASK_GROUP_BITS: usize = 32;

/// How the cores of this machine are divided among the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    per_host: usize,
    /// Numbers of the cores that this machine gives to the lab.
    available: Vec<usize>,
}

/// Why the cores can't be divided so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoresError {
    /// There are too few.
    #[error(
        "{hosts} hosts with {per_host} cores each, and one for manager and aggregators, need {needed} cores; this process \
         may use {available}"
    )]
    TooFew {
        /// Hosts of the lab.
        hosts: usize,
        /// What each was to have.
        per_host: usize,
        /// What the lab needs.
        needed: usize,
        /// What this process may use.
        available: usize,
    },
    /// The system does not tell which there are, as where it has more than 1,024.
    #[error("the system does not tell which cores this process may use")]
    Unknown(#[source] io::Error),
}

impl Cores {
    /// Gives each of `hosts` hosts `per_host` of the cores that this process may use. All other members share the rest.
    ///
    /// # Errors
    /// If no core would be left for the others.
    pub fn divide(hosts: u32, per_host: u32) -> Result<Self, CoresError> {
        let set = sched_getaffinity(None).map_err(|error| CoresError::Unknown(error.into()))?;
        let available = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
        Self::of(hosts as usize, per_host as usize, available)
    }

    fn of(hosts: usize, per_host: usize, available: Vec<usize>) -> Result<Self, CoresError> {
        let needed = hosts.saturating_mul(per_host).saturating_add(1);
        if needed > available.len() {
            let available = available.len();
            return Err(CoresError::TooFew { hosts, per_host, needed, available });
        }
        Ok(Self { per_host, available })
    }

    /// How many cores a host has.
    #[must_use]
    pub fn per_host(&self) -> usize {
        self.per_host
    }

    /// The cores of a member.
    #[must_use]
    pub fn of_member(&self, plan: &Plan, member: &Member) -> &[usize] {
        let place = plan.members_of(Role::Host).position(|host| host.name == member.name);
        match place {
            Some(at) => &self.available[at * self.per_host..][..self.per_host],
            None => self.shared_cores(plan),
        }
    }

    /// The cores of all that is no host.
    #[must_use]
    pub fn shared_cores(&self, plan: &Plan) -> &[usize] {
        &self.available[plan.members_of(Role::Host).count() * self.per_host..]
    }
}

/// Keeps this process, and those that it will start, on these cores.
pub(crate) fn keep_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).map_err(io::Error::from)
}

/// Lets these cores receive what comes in at an interface of this process's network. Otherwise the sender's core does a
/// receiver's work, which no core of another machine can.
pub(crate) fn receive_on(interface: &str, cores: &[usize]) -> io::Result<()> {
    fs::write(format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus"), mask_of(cores))
}

/// A processor mask as sysfs takes it: hexadecimal groups of 32 bits, the highest first, by commas.
fn mask_of(cores: &[usize]) -> String {
    let highest = cores.iter().max().map_or(0, |core| core / MASK_GROUP_BITS);
    let mut text = String::new();
    for group in (0..=highest).rev() {
        let bits = cores
            .iter()
            .filter(|core| *core / MASK_GROUP_BITS == group)
            .fold(0_u32, |bits, core| bits | 1 << (core % MASK_GROUP_BITS));
        let comma = if text.is_empty() { "" } else { "," };
        // Writing into a string can't fail.
        let _ = write!(text, "{comma}{bits:08x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{LinkOptions, NodePlacement, Shape};

    #[test]
    fn hosts_have_cores_of_their_own_and_the_others_share_the_rest() {
        let shape = Shape::new(3, 3, NodePlacement::All).unwrap();
        let plan = Plan::new(shape, LinkOptions::default());
        let cores = Cores::of(3, 2, vec![1, 2, 3, 5, 6, 7, 9, 40]).unwrap();
        let of = |name: &str| cores.of_member(&plan, plan.member(name).unwrap());
        assert_eq!([of("h0"), of("h1"), of("h2")], [[1, 2], [3, 5], [6, 7]]);
        assert_eq!(
            [of("manager"), of("leaf0"), of("leaf0-an"), cores.shared_cores(&plan)],
            [[9, 40]; 4]
        );
    }

    #[test]
    fn one_core_is_left_for_the_others() {
        assert!(Cores::of(2, 2, (0..5).collect()).is_ok());
        let refused = Cores::of(2, 2, (0..4).collect()).unwrap_err();
        assert!(matches!(refused, CoresError::TooFew { needed: 5, available: 4, .. }), "{refused}");
        assert!(Cores::of(2, usize::MAX, (0..4).collect()).is_err());
    }

    #[test]
    fn masks_are_written_as_sysfs_takes_them() {
        assert_eq!(mask_of(&[0, 1]), "00000003");
        assert_eq!(mask_of(&[4, 33]), "00000002,00000010");
        assert_eq!(mask_of(&[64]), "00000001,00000000,00000000");
    }
}
