//! A member's first process: sets up the member's namespaces, and runs its daemon and its sessions.
//!
//! As the first process of a process namespace, it inherits and reaps orphans, and when it ends,
//! the member ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};
use signal_hook::consts::SIGCHLD;

use crate::channel::{self, Receiver};
use crate::cores;
use crate::directory::{Directory, LabConfig};
use crate::messages::{Failure, Go};
use crate::namespaces::{self, StepError, step};
use crate::plan::{DAEMON_PORT, METRICS_ADDRESS, MULTICAST_ADDRESSES, Member, RINGS_SOCKET, Role};
use crate::scripts;
use crate::session::Sessions;
use crate::tools::Tool;

/// How long a host's service may take to start.
const SERVICE_WITHIN: Duration = Duration::from_secs(10);

/// Runs a member for as long as the lab lives. Reports each step to `supervisor`, which says when
/// to go on.
pub(crate) fn run(
    directory: &Directory,
    config: &LabConfig,
    member: &Member,
    supervisor: UnixStream,
) -> Result<(), Failure> {
    let mut orders = Receiver::new(&supervisor);
    let separated = separate(directory, config, member).map_err(Failure::from);
    report(&supervisor, &separated)?;
    separated?;
    // Without the supervisor there is no lab.
    let Some(Go) = orders.receive().map_err(step("the supervisor's message"))? else {
        return Ok(());
    };
    let listener = connect_and_listen(directory, config, member);
    report(&supervisor, &listener.as_ref().map(|_| ()).map_err(Clone::clone))?;
    let listener = listener?;
    drop(supervisor);
    serve(&listener).map_err(|error| step("the member's loop")(error).into())
}

fn report(supervisor: &UnixStream, outcome: &Result<(), Failure>) -> Result<(), Failure> {
    channel::send(supervisor, outcome)
        .map_err(|error| step("report to the supervisor")(error).into())
}

/// Separates this process from the machine in everything but files.
fn separate(directory: &Directory, config: &LabConfig, member: &Member) -> Result<(), StepError> {
    if let Some(cores) = &config.cores {
        cores::keep_on(cores.of_member(&config.plan, member)).map_err(step("a member's cores"))?;
    }
    namespaces::enter_member()?;
    namespaces::set_host_name(&member.name)?;
    namespaces::mount_processes()?;
    namespaces::mount_machine(&directory.hosts_file())?;
    namespaces::disable_ipv6()?;
    match member.role {
        Role::Switch => namespaces::bypass_bridge_filter(),
        _ => Ok(()),
    }
}

/// Configures this member's end of the network, starts its daemon, and listens for commands.
fn connect_and_listen(
    directory: &Directory,
    config: &LabConfig,
    member: &Member,
) -> Result<UnixListener, Failure> {
    let interfaces = config.plan.interfaces_of(&member.name);
    let links = &config.plan.links;
    if links.has_delay() {
        // The switch in user space does the rest.
        Tool::Ip.run(&scripts::addresses(&config.plan, member))?;
        namespaces::keep_windows_open().map_err(step("tcp_slow_start_after_idle"))?;
    } else {
        if member.role == Role::Switch {
            Tool::Ip.run(&scripts::switch(&interfaces))?;
        }
        Tool::Ip.run(&scripts::addresses(&config.plan, member))?;
        Tool::Tc.run(&scripts::rates(links, &interfaces))?;
        Tool::Nft.run(&scripts::drops(links, &interfaces))?;
    }
    if let Some(cores) = config.cores.as_ref().filter(|_| member.role != Role::Switch) {
        for interface in &interfaces {
            cores::receive_on(interface, cores.of_member(&config.plan, member))
                .map_err(step("the cores that receive (rps_cpus)"))?;
        }
    }
    start_daemon(directory, config, member).map_err(step("the member's daemon"))?;
    fs::create_dir_all(directory.temporary(&member.name)).map_err(step("temporary folder"))?;
    UnixListener::bind(directory.socket(&member.name))
        .map_err(|error| step("the member's socket")(error).into())
}

fn start_daemon(directory: &Directory, config: &LabConfig, member: &Member) -> io::Result<()> {
    let Some(arguments) = daemon_arguments(directory, config, member) else { return Ok(()) };
    let log = File::create(directory.log(&member.name))?;
    Command::new(&config.program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir("/")
        .spawn()?;
    if member.role == Role::Host { await_service(&directory.log(&member.name)) } else { Ok(()) }
}

/// Waits until a host's service of rings says that it takes connections: jobs would go on without it.
fn await_service(log: &Path) -> io::Result<()> {
    let until = Instant::now() + SERVICE_WITHIN;
    while !fs::read_to_string(log)?.contains(RINGS_SOCKET) {
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, fs::read_to_string(log)?));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn daemon_arguments(
    directory: &Directory,
    config: &LabConfig,
    member: &Member,
) -> Option<Vec<String>> {
    let listen = format!("{}:{DAEMON_PORT}", member.address?);
    let token = directory.token().display().to_string();
    let words: Vec<String> = match member.role {
        Role::Host => {
            let hook = config.rings.as_ref()?;
            ["rings", "--socket", RINGS_SOCKET, "--hook", hook].map(str::to_owned).to_vec()
        }
        Role::Manager => {
            let topology = directory.topology().display().to_string();
            let words = ["manager", "--listen", &listen, "--topology", &topology];
            let multicast: &[&str] =
                if config.has_multicast { &["--multicast", MULTICAST_ADDRESSES] } else { &[] };
            let authentication: &[&str] =
                if config.authenticates_frames { &["--authenticate-frames"] } else { &[] };
            let token = ["--token-file", &token];
            let words = words.iter().chain(multicast).chain(authentication).chain(&token);
            words.map(|word| (*word).to_owned()).collect()
        }
        Role::Node | Role::Switch => {
            let manager = config.plan.manager_address();
            let spin = config.node_spin_us.to_string();
            let words =
                ["node", "--listen", &listen, "--manager", &manager, "--name", &member.name];
            let further = ["--spin", &spin, "--token-file", &token];
            let mut words: Vec<_> = words.into_iter().chain(further).collect();
            let interfaces = config.plan.interfaces_of(&member.name);
            if config.node_kernel {
                words.extend(["--kernel", "tc", "--metrics", METRICS_ADDRESS]);
                words.extend(interfaces.iter().flat_map(|interface| ["--interface", interface]));
            }
            words.into_iter().map(str::to_owned).collect()
        }
    };
    Some(words)
}

/// Serves sessions and reaps processes, until killed.
fn serve(listener: &UnixListener) -> io::Result<()> {
    let (children, wake) = UnixStream::pair()?;
    children.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, wake)?;
    let mut sessions = Sessions::default();
    reap(&mut sessions);
    loop {
        let (is_connected, has_exits, readable) = sleep(listener, &children, &sessions)?;
        if has_exits {
            drain(&children);
        }
        let now = Instant::now();
        // A caller's end is only noted here, so the places stay valid.
        for at in readable {
            sessions.handle_readable(at, now);
        }
        reap(&mut sessions);
        sessions.handle_timeout(now);
        if is_connected {
            let (stream, _) = listener.accept()?;
            sessions.accept(stream);
        }
    }
}

/// Waits until something happens: a connection, an exit, or input from callers.
fn sleep(
    listener: &UnixListener,
    children: &UnixStream,
    sessions: &Sessions,
) -> io::Result<(bool, bool, Vec<usize>)> {
    let mut places = Vec::new();
    let mut watched =
        vec![PollFd::new(listener, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
    for (at, stream) in sessions.streams() {
        places.push(at);
        watched.push(PollFd::new(stream, PollFlags::IN));
    }
    let limit =
        sessions.poll_timeout().map(|at| timespec(at.saturating_duration_since(Instant::now())));
    match poll(&mut watched, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let has_news: Vec<bool> = watched.iter().map(|entry| !entry.revents().is_empty()).collect();
    let readable =
        places.into_iter().zip(&has_news[2..]).filter_map(|(at, news)| news.then_some(at));
    Ok((has_news[0], has_news[1], readable.collect()))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn drain(mut children: &UnixStream) {
    use std::io::Read as _;
    let mut bytes = [0; 64];
    // Ends when the pipe is empty. If a signal interrupts it, the next round continues.
    while children.read(&mut bytes).is_ok_and(|count| count > 0) {}
}

fn reap(sessions: &mut Sessions) {
    // `wait` fails if there are no children; nothing can be done about other errors.
    while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
        sessions.handle_exit(process, status.as_raw());
    }
}
