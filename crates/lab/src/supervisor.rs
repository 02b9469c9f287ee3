//! The process that a lab hangs on.
//!
//! It is the first process of the lab's process namespace, so that its end is every member's end.
//! It makes the members and the links between them, tells whoever brings the lab up, and from
//! then on does nothing but exist. Until the lab is committed, the end of that process is its own
//! end too.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{WaitOptions, wait};
use serde::{Deserialize, Serialize};

use crate::channel::{self, Receiver};
use crate::directory::{Directory, LabConfig, Lock};
use crate::member;
use crate::namespaces::{self, Birthplace, Forked, StepError, step};
use crate::plan::Member;
use crate::scripts;
use crate::tools::{Tool, ToolError};

/// Why a lab could not be made, in a form that travels between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Whether it is that this user may not have namespaces.
    pub is_refusal: bool,
    /// What was attempted, and what the system said.
    pub text: String,
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        Self { is_refusal: error.is_refusal(), text: error.to_string() }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self { is_refusal: false, text: error.to_string() }
    }
}

/// The word to go on: to a member that it is connected, to the supervisor that the lab is to stay.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Go;

/// A member that was made, as the supervisor sees it.
struct Made {
    name: String,
    process: i32,
    stream: UnixStream,
}

/// Keeps the lab whose folder this is; what the hidden subcommand runs. Standard input is the lab's
/// lock, and standard output a socket to the process that brings the lab up.
///
/// # Errors
/// If that process can't be told what else went wrong.
pub fn supervise(path: &Path) -> Result<(), Failure> {
    let directory = Directory::at(path);
    let (lock, control) = take_standard_streams().map_err(step("standard streams"))?;
    match leave_machine(&directory) {
        Err(error) => tell(&control, &Err(error.into())),
        Ok(Forked::Parent(supervisor)) => {
            directory.write_process(supervisor).map_err(|error| step("pid file")(error).into())
        }
        Ok(Forked::Child) => supervise_as_first_process(&directory, &lock, control),
    }
}

/// Takes over the two descriptors, and leaves nothing in their place.
fn take_standard_streams() -> io::Result<(Lock, UnixStream)> {
    let lock: OwnedFd = rustix::stdio::stdin().try_clone_to_owned()?;
    let control: OwnedFd = rustix::stdio::stdout().try_clone_to_owned()?;
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok((Lock(lock.into()), control.into()))
}

fn leave_machine(directory: &Directory) -> Result<Forked, StepError> {
    let scheduling = directory.read_scheduling().map_err(step("scheduling.json"))?;
    scheduling.enter().map_err(step("the lab's control group"))?;
    rustix::process::setsid().map_err(step("a session of its own"))?;
    if !rustix::process::geteuid().is_root() {
        namespaces::enter_user()?;
    }
    namespaces::enter_all()?;
    namespaces::fork()
}

fn tell(control: &UnixStream, outcome: &Result<(), Failure>) -> Result<(), Failure> {
    channel::send(control, outcome).map_err(|error| step("report")(error).into())
}

fn supervise_as_first_process(
    directory: &Directory,
    lock: &Lock,
    control: UnixStream,
) -> Result<(), Failure> {
    name_process("lab-supervisor");
    let mut control = Some(control);
    let built = build(directory, &mut control);
    let control = control.expect("only members let go of it");
    let is_built = built.is_ok();
    let is_wanted = tell(&control, &built).is_ok()
        && is_built
        && matches!(Receiver::new(&control).receive(), Ok(Some(Go)));
    if !is_wanted {
        end_members();
        let scheduling = directory.read_scheduling().map_err(step("scheduling.json"))?;
        scheduling.leave().map_err(step("out of the lab's control group"))?;
        return directory.remove(lock).map_err(|error| step("remove the folder")(error).into());
    }
    drop(control);
    // Members end only when they are killed; the lab goes on without them.
    while wait(WaitOptions::empty()).is_ok() {}
    Ok(())
}

/// Ends every other process of the lab, so that the folder does not go before they do.
fn end_members() {
    // SAFETY: no memory is involved. From the first process of a process namespace, -1 means all
    // others of that namespace and none outside it.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    while wait(WaitOptions::empty()).is_ok() {}
}

/// Makes members and links. What the supervisor says to whoever brings the lab up is not the members'
/// to hold open, so these let go of `control`.
fn build(directory: &Directory, control: &mut Option<UnixStream>) -> Result<(), Failure> {
    namespaces::mount_processes()?;
    let config = directory.read_config().map_err(step("lab.json"))?;
    let birthplace = Birthplace::own()?;
    let mut made: Vec<Made> = Vec::new();
    for member in &config.plan.members {
        let (near, far) = UnixStream::pair().map_err(step("socket pair"))?;
        match birthplace.fork_first()? {
            Forked::Parent(process) => {
                made.push(Made { name: member.name.clone(), process, stream: near });
            }
            Forked::Child => {
                drop((near, made, birthplace, control.take()));
                be_member(directory, &config, member, far);
            }
        }
    }
    await_all(&made)?;
    let process_of = |name: &str| {
        let member = made.iter().find(|member| member.name == name);
        member.expect("cables end at members").process
    };
    Tool::Ip.run(&scripts::cables(&config.plan, process_of))?;
    for member in &made {
        channel::send(&member.stream, &Go).map_err(step("word to a member"))?;
    }
    await_all(&made)
}

/// Waits until every member has done its step.
fn await_all(made: &[Made]) -> Result<(), Failure> {
    for member in made {
        let named = |text: String| format!("{}: {text}", member.name);
        // One message is waited for before the next is asked for, so nothing is read ahead.
        match Receiver::new(&member.stream).receive::<Result<(), Failure>>() {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(failure))) => {
                return Err(Failure { text: named(failure.text), ..failure });
            }
            Ok(None) => {
                let text = named("ended before it was ready".to_owned());
                return Err(Failure { is_refusal: false, text });
            }
            Err(error) => {
                return Err(Failure { is_refusal: false, text: named(error.to_string()) });
            }
        }
    }
    Ok(())
}

/// What a member's first process does; it never comes back to the supervisor's code.
fn be_member(
    directory: &Directory,
    config: &LabConfig,
    member: &Member,
    supervisor: UnixStream,
) -> ! {
    name_process(&format!("lab-{}", member.name));
    let code = match member::run(directory, config, member, supervisor) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    std::process::exit(code)
}

/// Names this process for `ps`; the kernel keeps 15 bytes.
fn name_process(name: &str) {
    let text: String = name.chars().take(15).collect();
    if let Ok(text) = std::ffi::CString::new(text) {
        // Only a name.
        let _ = rustix::thread::set_name(&text);
    }
}
