//! How launchers start processes in a lab: host files, a launch agent in place of `ssh`, and the
//! environment by which Open MPI and MPICH find both.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::directory::{Directory, LabConfig, write_at_once};
use crate::plan::{MEMBER_INTERFACE, Plan, Role};

/// Paths of the host files, one per kind of launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostFiles {
    open_mpi: PathBuf,
    hydra: PathBuf,
}

/// Writes the launch agent. It is a script, because some launchers accept a path without arguments
/// only.
pub(crate) fn write_agent(directory: &Directory, config: &LabConfig) -> io::Result<()> {
    let mut script = b"#!/bin/sh\nexec ".to_vec();
    for word in [config.program.as_os_str(), OsStr::new("lab-agent"), directory.path().as_os_str()]
    {
        script.extend(quote(word));
        script.push(b' ');
    }
    script.extend(b"\"$@\"\n");
    write_at_once(&directory.launch_agent(), &script, 0o700)
}

/// Writes the host files for `ranks_per_host`.
fn write_host_files(
    directory: &Directory,
    plan: &Plan,
    ranks_per_host: u32,
) -> io::Result<HostFiles> {
    let path = |kind: &str| directory.path().join(format!("hosts-{kind}-{ranks_per_host}"));
    let files = HostFiles { open_mpi: path("openmpi"), hydra: path("hydra") };
    let text = |line: &dyn Fn(&str) -> String| -> String {
        plan.members_of(Role::Host).map(|host| line(&host.name)).collect()
    };
    let open_mpi = text(&|name| format!("{name} slots={ranks_per_host}\n"));
    let hydra = text(&|name| format!("{name}:{ranks_per_host}\n"));
    write_at_once(&files.open_mpi, open_mpi.as_bytes(), 0o600)?;
    write_at_once(&files.hydra, hydra.as_bytes(), 0o600)?;
    Ok(files)
}

/// The environment in which a launcher starts `ranks_per_host` ranks on every host of the lab.
/// Leaves out variables that are already set.
///
/// # Errors
/// If the host files can't be written.
pub fn environment(
    directory: &Directory,
    config: &LabConfig,
    ranks_per_host: u32,
    is_set: impl Fn(&str) -> bool,
) -> io::Result<Vec<(&'static str, OsString)>> {
    let files = write_host_files(directory, &config.plan, ranks_per_host)?;
    let agent = directory.launch_agent();
    let mut variables: Vec<(&'static str, OsString)> = vec![
        ("PRTE_MCA_plm_ssh_agent", agent.clone().into()),
        ("PRTE_MCA_prte_default_hostfile", files.open_mpi.clone().into()),
        // Otherwise every host would bind its first rank to the machine's first core.
        ("PRTE_MCA_hwloc_default_binding_policy", "none".into()),
        // The same for Open MPI 4.
        ("OMPI_MCA_plm_rsh_agent", agent.clone().into()),
        ("OMPI_MCA_orte_default_hostfile", files.open_mpi.into()),
        ("OMPI_MCA_hwloc_base_binding_policy", "none".into()),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1".into()),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".into()),
        ("HYDRA_LAUNCHER", "ssh".into()),
        ("HYDRA_LAUNCHER_EXEC", agent.into()),
        ("HYDRA_HOST_FILE", files.hydra.into()),
        ("HYDRA_IFACE", MEMBER_INTERFACE.into()),
    ];
    // With delay ranks wait long, and the switch needs a core too.
    let is_crowded = is_crowded(config, ranks_per_host as usize);
    if config.plan.links.has_delay() || is_crowded {
        // Each host sees all cores as its own; only the lab knows that they are shared.
        variables.push(("OMPI_MCA_mpi_yield_when_idle", "1".into()));
        variables.push(("TRIBUTARY_WAIT", "sleep".into()));
    }
    variables.retain(|(name, _)| !is_set(name));
    Ok(variables)
}

/// What a user should know who lets a launcher put more ranks on a host than it has slots, by a word of its command or a variable.
#[must_use]
pub fn hint(
    command: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<&'static str> {
    let lets_oversubscribe = |word: &OsString| {
        let word = word.to_string_lossy().to_lowercase();
        word == "--oversubscribe" || word == "-oversubscribe" || word.contains(":oversubscribe")
    };
    let policy = variable("PRTE_MCA_rmaps_default_mapping_policy");
    command.iter().chain(&policy).any(lets_oversubscribe).then_some(
        "Open MPI 5 puts all ranks on the first host where it may oversubscribe; leave that out, and say by \
         --ranks-per-host N how many each host takes",
    )
}

/// Whether there are more ranks than cores.
fn is_crowded(config: &LabConfig, ranks_per_host: usize) -> bool {
    if let Some(cores) = &config.cores {
        return ranks_per_host > cores.per_host();
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    config.plan.shape.hosts() as usize * ranks_per_host > cores
}

/// A call of the launch agent, with the arguments of `ssh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCall {
    /// The host to run on.
    pub host: String,
    /// The shell script to run there.
    pub script: OsString,
}

/// Why a call of the launch agent is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentCallError {
    /// No host, or nothing to run.
    #[error("HOST COMMAND... is needed, as ssh takes it")]
    Incomplete,
    /// An option of ssh that the agent does not support.
    #[error("option {option} of ssh is not known here; -x, -n, -q and -l USER are")]
    Option {
        /// As it was given.
        option: String,
    },
}

impl AgentCall {
    /// Reads the arguments that a launcher gives to `ssh`.
    ///
    /// # Errors
    /// If they are incomplete, or contain an unsupported option.
    pub fn parse(arguments: Vec<OsString>) -> Result<Self, AgentCallError> {
        let mut arguments = arguments.into_iter();
        let host = loop {
            let word = arguments.next().ok_or(AgentCallError::Incomplete)?;
            match word.to_str() {
                Some("-x" | "-n" | "-q") => {}
                Some("-l") => {
                    arguments.next().ok_or(AgentCallError::Incomplete)?;
                }
                Some(option) if option.starts_with('-') => {
                    return Err(AgentCallError::Option { option: option.to_owned() });
                }
                Some(host) => break host.rsplit('@').next().unwrap_or(host).to_owned(),
                None => return Err(AgentCallError::Incomplete),
            }
        };
        let words: Vec<OsString> = arguments.collect();
        if words.is_empty() {
            return Err(AgentCallError::Incomplete);
        }
        Ok(Self { host, script: words.join(OsStr::new(" ")) })
    }

    /// The command that runs the script.
    #[must_use]
    pub fn words(self) -> Vec<OsString> {
        vec!["/bin/sh".into(), "-c".into(), self.script]
    }
}

/// A word in quotes for the shell.
fn quote(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
    OsString::from_vec(text).into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn calls_are_read_as_ssh_reads_them() {
        let call = AgentCall::parse(words("-x -l me h3 prted --daemon; exit")).unwrap();
        assert_eq!(call.host, "h3");
        assert_eq!(call.words(), ["/bin/sh", "-c", "prted --daemon; exit"]);
        assert_eq!(AgentCall::parse(words("root@h1 true")).unwrap().host, "h1");
        assert_eq!(AgentCall::parse(words("-x h3")), Err(AgentCallError::Incomplete));
        assert_eq!(AgentCall::parse(Vec::new()), Err(AgentCallError::Incomplete));
        assert_eq!(
            AgentCall::parse(words("-J jump h3 true")),
            Err(AgentCallError::Option { option: "-J".to_owned() })
        );
    }

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quote(OsStr::new("it's")), b"'it'\\''s'");
    }
}
