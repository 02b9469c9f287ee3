//! Processes under test: each ends when its value is dropped, and every wait has a limit.

#![allow(dead_code, reason = "every test program uses another part")]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A process that takes longer hangs; this is no bound on speed.
const WATCHDOG: Duration = Duration::from_secs(120);

const POLL: Duration = Duration::from_millis(10);

/// The program, without any knob of the environment.
pub(crate) fn tributary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TRIBUTARY_") {
            command.env_remove(name);
        }
    }
    command
}

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

thread_local! {
    /// The processes of this test; a wait that fails prints their output.
    static STARTED: RefCell<Vec<Weak<Process>>> = const { RefCell::new(Vec::new()) };
    /// The last process that was waited for, which a wait may run to poll.
    static LAST_ENDED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A process, and its output so far.
struct Process {
    command: String,
    child: RefCell<Child>,
    stdout: Output,
    stderr: Output,
}

impl Process {
    fn status(&self) -> Option<ExitStatus> {
        self.child.borrow_mut().try_wait().expect("the child is ours")
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.status().map_or("it still runs".to_owned(), |status| status.to_string());
        writeln!(f, "{}: {state}", self.command)?;
        for (stream, output) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            writeln!(f, "{stream}: {}", output.text().trim_end())?;
        }
        Ok(())
    }
}

/// The output of a process on one of its streams.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Cell<Option<thread::JoinHandle<()>>>,
}

impl Output {
    fn collect(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                let count = from.read(&mut chunk).expect("a pipe can be read");
                if count == 0 {
                    return;
                }
                target.lock().expect("nobody panics with it").extend_from_slice(&chunk[..count]);
            }
        });
        Self { bytes, reader: Cell::new(Some(reader)) }
    }

    /// The output so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("nobody panics with it")).into_owned()
    }

    /// The last of the output so far.
    fn last(&self) -> String {
        let bytes = self.bytes.lock().expect("nobody panics with it");
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4096)..]).into_owned()
    }

    /// All of it, once every writer has closed the stream.
    fn whole(&self) -> String {
        self.reader.take().expect("taken once").join().expect("the reader does not panic");
        let bytes = self.bytes.lock().expect("nobody panics with it").clone();
        String::from_utf8(bytes).expect("the program writes text")
    }
}

/// A process that runs beside the test.
pub(crate) struct Running(Rc<Process>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let process = Rc::new(Process {
            command: format!("{command:?}"),
            stdout: Output::collect(child.stdout.take().expect("piped")),
            stderr: Output::collect(child.stderr.take().expect("piped")),
            child: RefCell::new(child),
        });
        STARTED.with_borrow_mut(|started| {
            started.retain(|process| process.strong_count() > 0);
            started.push(Rc::downgrade(&process));
        });
        Self(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.child.borrow().id()
    }

    /// The end of what it has written to its standard output so far, some thousand bytes.
    pub(crate) fn last_lines(&self) -> String {
        self.0.stdout.last()
    }

    /// Waits for the end.
    pub(crate) fn wait(self) -> Ended {
        let status = await_that("the program ends", || self.0.status());
        let ended = Ended { status, stdout: self.0.stdout.whole(), stderr: self.0.stderr.whole() };
        LAST_ENDED.set(self.0.to_string());
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut child = self.0.child.borrow_mut();
        // Fails for a child that has been waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).wait()
}

/// Processes whose parent is `parent`.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Waits until `parent` has `count` children.
pub(crate) fn await_children(parent: u32, count: usize) -> Vec<u32> {
    await_that("the ranks start", || {
        let children = children_of(parent);
        (children.len() == count).then_some(children)
    })
}

/// Polls until `poll` returns something.
pub(crate) fn await_that<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    await_within(WATCHDOG, what, poll)
}

/// Polls until `poll` returns something. Panics after `limit`, with the output of every process of this
/// test.
pub(crate) fn await_within<T>(
    limit: Duration,
    what: &str,
    mut poll: impl FnMut() -> Option<T>,
) -> T {
    let hangs_at = Instant::now() + limit;
    loop {
        if let Some(seen) = poll() {
            return seen;
        }
        assert!(Instant::now() < hangs_at, "nothing came of waiting: {what}\n{}", started());
        thread::sleep(POLL);
    }
}

fn started() -> String {
    let mut text = LAST_ENDED.with_borrow(Clone::clone);
    STARTED.with_borrow(|all| {
        for process in all.iter().filter_map(Weak::upgrade) {
            text.push_str(&process.to_string());
        }
    });
    text
}

/// `kill -9`.
pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid is not 0");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// A daemon and the address it announced.
pub(crate) struct Daemon {
    running: Running,
    pub(crate) address: String,
    /// An aggregator's name; empty for a manager.
    pub(crate) name: String,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str], token: &Path) -> Self {
        Self::await_address(tributary().args(arguments).arg("--token-file").arg(token))
    }

    fn await_address(command: &mut Command) -> Self {
        let running = Running::start(command);
        let line = await_that("the daemon says where it listens", || {
            running.0.stdout.text().split_once('\n').map(|(line, _)| line.to_owned())
        });
        let address = line.rsplit(' ').next().expect("a line has words").to_owned();
        Self { running, address, name: String::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.running.0.child.borrow_mut();
        child.kill().expect("the daemon is ours");
        child.wait().expect("the daemon is ours");
    }

    /// Asks it to stop and waits for that.
    pub(crate) fn stop(self) -> ExitStatus {
        signal(self.id(), rustix::process::Signal::TERM);
        self.running.wait().status
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.running.0.stderr.text()
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("the daemon lives").count()
    }

    /// Time on processors, in hundredths of a second.
    pub(crate) fn processor_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("the daemon lives");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Memory in use, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))
            .expect("the daemon lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .expect("the kernel tells the memory in use")
    }
}

/// A manager and aggregation nodes as processes: `a` is the root, the others its children.
pub(crate) struct Daemons {
    folder: TempDir,
    pub(crate) manager: Daemon,
    pub(crate) nodes: Vec<Daemon>,
}

impl Daemons {
    pub(crate) fn start(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let token = folder.path().join("token");
        let made = run(tributary().args(["token", "create"]).arg(&token));
        assert!(made.status.success(), "{}", made.stderr);
        let manager = Self::start_manager("127.0.0.1:0", &token);
        let mut daemons = Self { folder, manager, nodes: Vec::new() };
        for name in names {
            daemons.add(name);
        }
        daemons.await_nodes(names.len());
        daemons
    }

    fn start_manager(listen: &str, token: &Path) -> Daemon {
        Daemon::start(&["manager", "--listen", listen], token)
    }

    /// Kills the manager, and after a pause starts another at its address.
    pub(crate) fn replace_manager(&mut self, pause: Duration) {
        self.manager.kill();
        std::thread::sleep(pause);
        self.manager = Self::start_manager(&self.manager.address, &self.token());
    }

    /// Where an aggregator hands out shared memory.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// Starts one more aggregator, which may open so many descriptors.
    pub(crate) fn add_with_descriptors(&mut self, name: &str, most: u32) {
        let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tributary"), "node", "--name", name]);
        command.args(["--manager", &self.manager.address, "--listen", "127.0.0.1:0"]);
        command.arg("--shm").arg(self.socket(name)).arg("--token-file").arg(self.token());
        let started = Daemon::await_address(&mut command);
        self.nodes.push(Daemon { name: name.to_owned(), ..started });
    }

    /// Starts one more aggregator.
    pub(crate) fn add(&mut self, name: &str) {
        let manager = self.manager.address.clone();
        let shm = self.folder.path().join(format!("{name}.sock"));
        let shm = shm.to_str().expect("temporary paths are text");
        let arguments = [
            "node",
            "--manager",
            &manager,
            "--listen",
            "127.0.0.1:0",
            "--name",
            name,
            "--shm",
            shm,
        ];
        let started = Daemon::start(&arguments, &self.token());
        self.nodes.push(Daemon { name: name.to_owned(), ..started });
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// The program with this fabric in its environment.
    pub(crate) fn tributary(&self) -> Command {
        let mut command = tributary();
        command.env("TRIBUTARY_MANAGER", &self.manager.address);
        command.env("TRIBUTARY_TOKEN_FILE", self.token());
        command
    }

    /// The manager's state.
    pub(crate) fn status(&self) -> serde_json::Value {
        let ended = run(self.tributary().args(["status", "--json"]));
        assert!(ended.status.success(), "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).expect("status is JSON")
    }

    pub(crate) fn await_nodes(&self, count: usize) {
        await_that("the nodes register", || {
            (list(&self.status(), "nodes").len() == count).then_some(())
        });
    }

    /// Waits until no job, no group and no outstanding operation is held.
    pub(crate) fn await_idle(&self) {
        await_that("the fabric is idle", || {
            let status = self.status();
            let none = |what: &str| list(&status, what).is_empty();
            let unused = list(&status, "nodes").iter().all(|node| node["osos_used"] == 0);
            (none("jobs") && none("groups") && unused).then_some(())
        });
    }
}

/// One list of a status.
pub(crate) fn list<'a>(status: &'a serde_json::Value, name: &str) -> &'a [serde_json::Value] {
    status[name].as_array().expect("a status has its lists")
}
