//! The supervisor of a lab, whose end ends the lab.
//!
//! It is the first process of the lab's process namespace, so the kernel ends every member with it.
//! It makes the members and the links between them, reports to the process that brings the lab up,
//! and then only waits. Until that process confirms that the lab is to stay, the supervisor ends
//! with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{WaitOptions, wait};

use crate::channel::{self, Receiver};
use crate::cores;
use crate::directory::{Directory, LabConfig, Lock};
use crate::member;
use crate::messages::{Failure, Go};
use crate::namespaces::{self, Birthplace, Forked, StepError, step};
use crate::plan::Member;
use crate::scripts;
use crate::switch;
use crate::tools::Tool;

/// The supervisor's record of a member.
struct Made {
    name: String,
    process: i32,
    stream: UnixStream,
}

/// Supervises the lab in the folder `path`; the hidden subcommand runs this. Standard input is the
/// lab's lock, and standard output is a socket to the process that brings the lab up.
///
/// # Errors
/// If the lab failed and that process could not be told.
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

/// Takes over the two descriptors, and puts `/dev/null` in their place.
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
    let control = control.expect("only members drop it");
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
    // Members end only when they are killed; the lab continues without them.
    while wait(WaitOptions::empty()).is_ok() {}
    Ok(())
}

/// Ends every other process of the lab, before its folder is removed.
fn end_members() {
    // SAFETY: `kill` accesses no memory. Called by the first process of a process namespace, which
    // this is, -1 means all others of that namespace and none outside it.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    while wait(WaitOptions::empty()).is_ok() {}
}

/// Makes members and links. Members drop their copy of `control`, so that the other end sees the
/// supervisor's end.
fn build(directory: &Directory, control: &mut Option<UnixStream>) -> Result<(), Failure> {
    namespaces::mount_processes()?;
    let config = directory.read_config().map_err(step("lab.json"))?;
    if let Some(cores) = &config.cores {
        cores::keep_on(cores.shared_cores(&config.plan))
            .map_err(step("the cores of manager and aggregators"))?;
    }
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
    if config.plan.links.has_delay() {
        let processes: Vec<i32> =
            config.plan.speakers().map(|member| process_of(&member.name)).collect();
        let switch = start_switch(directory, &config, &processes, control)?;
        await_all(std::slice::from_ref(&switch))?;
    }
    for member in &made {
        channel::send(&member.stream, &Go).map_err(step("message to a member"))?;
    }
    await_all(&made)
}

/// Starts the switch in user space, which drops its copy of `control` as members do.
fn start_switch(
    directory: &Directory,
    config: &LabConfig,
    processes: &[i32],
    control: &mut Option<UnixStream>,
) -> Result<Made, Failure> {
    let (near, far) = UnixStream::pair().map_err(step("socket pair"))?;
    match namespaces::fork()? {
        Forked::Parent(process) => Ok(Made { name: "switch".to_owned(), process, stream: near }),
        Forked::Child => {
            drop((near, control.take()));
            name_process("lab-switch");
            let ended = switch::run(directory, config, processes, far);
            std::process::exit(i32::from(ended.is_err()))
        }
    }
}

/// Waits until every member has done its step.
fn await_all(made: &[Made]) -> Result<(), Failure> {
    for member in made {
        let named = |text: String| format!("{}: {text}", member.name);
        // A member sends one message per step, so a new receiver loses nothing.
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

/// Runs a member's first process; never returns to the supervisor's code.
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
        // Cosmetic, so an error is ignored.
        let _ = rustix::thread::set_name(&text);
    }
}
