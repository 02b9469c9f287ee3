//! Processes under test: each is ended when its value is dropped, and no wait lasts for ever.

#![allow(dead_code, reason = "every test program uses another part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// After this long a process hangs: a guard, not a bound on speed.
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

/// A process that runs beside the test.
pub(crate) struct Running {
    child: Child,
    stdout: Option<thread::JoinHandle<String>>,
    stderr: Option<thread::JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = Some(collect(child.stdout.take().expect("piped")));
        let stderr = Some(collect(child.stderr.take().expect("piped")));
        Self { child, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        let hangs_at = Instant::now() + WATCHDOG;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                break status;
            }
            assert!(Instant::now() < hangs_at, "the program hangs");
            thread::sleep(POLL);
        };
        let text = |reader: Option<thread::JoinHandle<String>>| {
            reader.expect("taken once").join().expect("the reader does not panic")
        };
        Ended { status, stdout: text(self.stdout.take()), stderr: text(self.stderr.take()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails for a child that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).expect("the program writes text");
        text
    })
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

/// Polls until `look` sees something.
pub(crate) fn await_that<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let hangs_at = Instant::now() + WATCHDOG;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < hangs_at, "waited in vain: {what}");
        thread::sleep(POLL);
    }
}

/// `kill -9`.
pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid is not 0");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// A daemon and the address it announced.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: String,
}

impl Daemon {
    fn start(arguments: &[&str], token: &Path) -> Self {
        let mut child = tributary()
            .args(arguments)
            .arg("--token-file")
            .arg(token)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the daemon starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let line = lines.recv_timeout(WATCHDOG).expect("the daemon says where it listens");
        let address = line.rsplit(' ').next().expect("a line has words").to_owned();
        Self { child, address }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the daemon is ours");
        self.child.wait().expect("the daemon is ours");
    }

    /// Asks it to stop and waits for that.
    pub(crate) fn stop(mut self) -> ExitStatus {
        signal(self.id(), rustix::process::Signal::TERM);
        await_that("the daemon stops", || self.child.try_wait().expect("the daemon is ours"))
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("the daemon lives").count()
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

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let manager = Daemon::start(&["manager", "--listen", "127.0.0.1:0"], &token);
        let mut daemons = Self { folder, manager, nodes: Vec::new() };
        for name in names {
            daemons.add(name);
        }
        daemons.await_nodes(names.len());
        daemons
    }

    /// Starts one more node.
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
        self.nodes.push(Daemon::start(&arguments, &self.token()));
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
