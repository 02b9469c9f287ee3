//! What this machine and this process bring for the kernel path. It is looked at before the kernel is asked,
//! whose own refusals name no cause.

use std::fs;
use std::path::PathBuf;

use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};

/// The first kernel whose links at traffic control end with the process that holds them.
const KERNEL_MIN: (u32, u32) = (6, 6);

/// The machine and the process, as far as the kernel path needs them.
#[derive(Clone, Debug)]
pub struct Host {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The file that says whether programs are compiled: `0` if not. Network namespaces but the first lack it.
    pub jit_setting: PathBuf,
    /// What this thread may do.
    pub capabilities: CapabilitySet,
}

/// What the kernel path needs and the machine or the process does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingPrerequisite {
    /// The kernel is too old.
    #[error("kernel {release} is too old: the kernel path needs {}.{}", KERNEL_MIN.0, KERNEL_MIN.1)]
    Kernel {
        /// Its release.
        release: String,
    },
    /// The kernel interprets programs. Then it takes none with loops over functions.
    #[error("the kernel does not compile programs: {} is 0", setting.display())]
    Jit {
        /// Where that is set.
        setting: PathBuf,
    },
    /// The process may not load programs.
    #[error("this process lacks {}", .0.join(", "))]
    Capabilities(Vec<&'static str>),
}

impl Host {
    /// This machine and this thread.
    #[must_use]
    pub fn here() -> Self {
        Self {
            release: uname().release().to_string_lossy().into_owned(),
            jit_setting: "/proc/sys/net/core/bpf_jit_enable".into(),
            // A thread can always ask for its own; if it can't, the kernel's refusal is to count.
            capabilities: capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective),
        }
    }

    /// Whether the kernel path can be loaded, as far as that can be known before.
    ///
    /// # Errors
    /// With the first thing that is lacking.
    pub fn check(&self) -> Result<(), MissingPrerequisite> {
        if version(&self.release).is_some_and(|version| version < KERNEL_MIN) {
            return Err(MissingPrerequisite::Kernel { release: self.release.clone() });
        }
        if fs::read_to_string(&self.jit_setting).is_ok_and(|value| value.trim() == "0") {
            return Err(MissingPrerequisite::Jit { setting: self.jit_setting.clone() });
        }
        match self.lacking() {
            lacking if lacking.is_empty() => Ok(()),
            lacking => Err(MissingPrerequisite::Capabilities(lacking)),
        }
    }

    /// capabilities(7): `CAP_SYS_ADMIN` has those for programs in it.
    fn lacking(&self) -> Vec<&'static str> {
        let needed = [
            ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
            ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
            ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
        ];
        let lacks = |(_, any): &(_, CapabilitySet)| !self.capabilities.intersects(*any);
        needed.into_iter().filter(lacks).map(|(name, _)| name).collect()
    }
}

/// The first two numbers of a release; none if it has another form, which is not held against it.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A machine that has everything.
    fn able() -> Host {
        Host {
            release: "6.6.0".into(),
            jit_setting: "/nonexistent".into(),
            capabilities: CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON,
        }
    }

    #[test]
    fn old_kernels_are_named() {
        for release in ["6.6.0", "6.12.9-generic", "10.0-rc1", "odd"] {
            assert_eq!(Host { release: release.into(), ..able() }.check(), Ok(()), "{release}");
        }
        for release in ["6.5.13", "6.1.0-28-amd64", "5.14.0-427.el9.x86_64", "4.18"] {
            let missing = Host { release: release.into(), ..able() }.check().unwrap_err();
            assert_eq!(missing, MissingPrerequisite::Kernel { release: release.into() });
        }
        let missing = MissingPrerequisite::Kernel { release: "6.1.0-28-amd64".into() };
        let said = "kernel 6.1.0-28-amd64 is too old: the kernel path needs 6.6";
        assert_eq!(missing.to_string(), said);
    }

    #[test]
    fn a_kernel_that_interprets_is_named() {
        let mut setting = tempfile::NamedTempFile::new().unwrap();
        let host = Host { jit_setting: setting.path().to_owned(), ..able() };
        setting.write_all(b"1\n").unwrap();
        assert_eq!(host.check(), Ok(()));
        setting.as_file().set_len(0).unwrap();
        setting.reopen().unwrap().write_all(b"0\n").unwrap();
        assert_eq!(
            host.check(),
            Err(MissingPrerequisite::Jit { setting: setting.path().to_owned() })
        );
    }

    #[test]
    fn lacking_capabilities_are_named() {
        let with = |capabilities| Host { capabilities, ..able() }.check();
        let none =
            MissingPrerequisite::Capabilities(vec!["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(with(CapabilitySet::empty()), Err(none));
        assert_eq!(
            with(CapabilitySet::SYS_ADMIN),
            Err(MissingPrerequisite::Capabilities(vec!["CAP_NET_ADMIN"])),
            "an administrator has the others"
        );
        let without = with(CapabilitySet::BPF | CapabilitySet::NET_ADMIN).unwrap_err();
        assert_eq!(without.to_string(), "this process lacks CAP_PERFMON");
    }
}
