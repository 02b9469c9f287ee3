//! Groups whose ranks are confined as in containers and on hardened kernels: the real namespaces
//! and filters, made with unshare(1) and seccomp(2). Each finds its way to the segment, says what
//! it has to do without, and computes what the oracle says.
//!
//! Yama's `ptrace_scope` cannot be set for one process, so it is not tested by itself; it denies
//! the same calls with the same error as another user namespace and as the filter here.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use super::script::{Manner, play};
use crate::{
    AttachError, Attachment, HostGroup, Mailbox, MailboxName, Offer, Unreachable, UnreachableCause,
};

const TASK: &str = "TRIBUTARY_CONFINED_TEST_TASK";
/// After this long a worker ends itself, and its test fails.
const WATCHDOG_S: u32 = 120;
/// Marks a worker's lines; the test harness prints lines of its own.
const SAYS: &str = "worker says: ";

/// A rank in its confinement.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this test program again as a rank, by the command `confinement` if there is one.
    fn start(confinement: &[&str], task: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = match confinement {
            [] => Command::new(&program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        let mut child = command
            .args(["tests::confined::worker", "--exact", "--ignored", "--nocapture"])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The next thing that the worker says.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "a worker broke down: {:?}", self.child.wait());
            if let Some((_, said)) = line.trim_end().split_once(SAYS) {
                return said.to_owned();
            }
        }
    }
}

fn say(what: &str) {
    println!("\n{SAYS}{what}");
}

/// `task` is `offer rank ranks filter`.
#[test]
#[ignore = "a rank of the other tests of this file, started by them"]
fn worker() {
    let Ok(task) = std::env::var(TASK) else { return };
    // SAFETY: a system call without memory.
    unsafe { libc::alarm(WATCHDOG_S) };
    let fields: Vec<&str> = task.split(' ').collect();
    if let ["dies", stage] = fields[..] {
        die_at(stage.parse().unwrap());
    }
    let offer = Offer::from_bytes(&from_hex(fields[0])).unwrap();
    let (rank, ranks) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
    if fields[3] == "filter" {
        forbid_cross_memory();
    }
    let (attachment, way) = attach(&offer, rank, ranks);
    say("attached");
    while attachment.all_attached().is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut group = attachment.settle(ranks).unwrap();
    let manner = Manner { seed: 5, operations: 60, len_bytes_max: 200_000, delays: false };
    play(&mut group, manner).unwrap();
    let shm = rustix::fs::statvfs("/dev/shm").map_or(0, |status| status.f_blocks * status.f_frsize);
    say(&format!("{way}, {:?}, {shm}", group.direct_access()));
}

fn attach(offer: &Offer, rank: u32, ranks: u32) -> (Attachment, &'static str) {
    match HostGroup::attach(offer, rank, ranks) {
        Ok(attachment) => (attachment, "offered"),
        Err(AttachError::NotPermitted { .. }) => {
            let mailbox = Mailbox::new().unwrap();
            say(&to_hex(&mailbox.name().0));
            std::io::stdin().lines().next().unwrap().unwrap();
            let attachment = HostGroup::attach_delivered(offer, &mailbox, rank, ranks);
            (attachment.unwrap(), "delivered")
        }
        Err(other) => panic!("{other}"),
    }
}

/// Has the kernel answer the two system calls of direct access with `EPERM`, as container runtimes
/// do by default.
fn forbid_cross_memory() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump_if = |number: libc::c_long, jt: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf: 0,
        k: number as u32,
    };
    let mut filter = [
        // The system call's number is the first word that a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump_if(libc::SYS_process_vm_readv, 2),
        jump_if(libc::SYS_process_vm_writev, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live until the calls return; the kernel copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// Whether this machine lets tests confine processes with `command`. Where it does not, the test
/// is skipped, which it says past the harness, and in CI is a failure.
fn can_confine(command: &[&str]) -> bool {
    let [first, rest @ ..] = command else { return true };
    let tried = Command::new(first).args(rest).arg("true").output();
    let can = tried.as_ref().is_ok_and(|output| output.status.success());
    if !can {
        assert!(std::env::var_os("CI").is_none(), "{command:?} is not permitted: {tried:?}");
        // `eprintln!` would be captured.
        writeln!(std::io::stderr(), "SKIPPED: {command:?} is not permitted here: {tried:?}")
            .unwrap();
    }
    can
}

/// Runs two ranks in the same kind of confinement; returns what they say in the end.
fn run_confined(confinement: &[&str], filter: &str) -> Vec<String> {
    let (offer, handle) = HostGroup::offer(2).unwrap();
    let mut workers: Vec<_> = (0..2)
        .map(|rank| {
            let task = format!("{} {rank} 2 {filter}", to_hex(&offer.to_bytes()));
            Worker::start(confinement, &task)
        })
        .collect();
    for worker in &mut workers {
        let said = worker.hear();
        if said != "attached" {
            handle.deliver(MailboxName(from_hex(&said))).unwrap();
            writeln!(worker.input, "delivered").unwrap();
            assert_eq!(worker.hear(), "attached");
        }
    }
    drop(handle);
    workers
        .iter_mut()
        .map(|worker| {
            let said = worker.hear();
            assert!(worker.child.wait().unwrap().success());
            said
        })
        .collect()
}

/// What both ranks of a group say if the first was denied so.
fn expected(way: &str, cause: UnreachableCause) -> String {
    let denied = Unreachable { local_rank: 0, peer: 1, cause };
    format!("{way}, {:?}, ", Err::<(), _>(denied))
}

#[test]
fn ranks_at_large_use_everything() {
    for said in run_confined(&[], "none") {
        assert!(said.starts_with("offered, Ok(()), "), "{said}");
    }
}

#[test]
fn ranks_behind_a_filter_stage_long_vectors() {
    for said in run_confined(&[], "filter") {
        assert!(
            said.starts_with(&expected("offered", UnreachableCause::Read(Errno::PERM))),
            "{said}"
        );
    }
}

#[test]
fn ranks_in_user_namespaces_are_handed_the_segment_and_stage() {
    let confinement = ["unshare", "-U"];
    if !can_confine(&confinement) {
        return;
    }
    for said in run_confined(&confinement, "none") {
        let expected = expected("delivered", UnreachableCause::Read(Errno::PERM));
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn ranks_in_pid_namespaces_are_handed_the_segment_and_stage() {
    let confinement = ["unshare", "-Urpf", "--mount-proc"];
    if !can_confine(&confinement) {
        return;
    }
    for said in run_confined(&confinement, "none") {
        let expected = expected("delivered", UnreachableCause::OtherNamespace);
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn a_small_dev_shm_does_not_matter() {
    let mount = "mount -t tmpfs -o size=16k none /dev/shm && exec \"$0\" \"$@\"";
    let confinement = ["unshare", "-Urm", "sh", "-c", mount];
    if !can_confine(&confinement) {
        return;
    }
    for said in run_confined(&confinement, "none") {
        assert!(said.starts_with("delivered, ") && said.ends_with(", 16384"), "{said}");
    }
}

/// A leader that is killed at a point of setting up. Before, it says where it could be found.
fn die_at(stage: u32) -> ! {
    let (offer, handle) = HostGroup::offer(1).unwrap();
    let mailbox = (stage > 0).then(|| Mailbox::new().unwrap());
    if let Some(mailbox) = mailbox.as_ref().filter(|_| stage > 1) {
        handle.deliver(mailbox.name()).unwrap();
    }
    let attachment =
        (stage > 2).then(|| HostGroup::attach_with_handle(&offer, &handle, 0, 1).unwrap());
    let _group = attachment.filter(|_| stage > 3).map(|attachment| attachment.settle(1).unwrap());
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        Some(std::fs::read_link(entry.unwrap().path()).ok()?.to_string_lossy().into_owned())
    });
    let files: Vec<_> = links.filter(|link| link.contains("tributary-host")).collect();
    assert!(!files.is_empty());
    say(&files.join(" and "));
    say(&mailbox.map_or("none".to_owned(), |mailbox| to_hex(&mailbox.name().0)));
    // SAFETY: a system call without memory.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("SIGKILL cannot be ignored")
}

#[test]
fn a_leader_killed_while_it_sets_up_leaves_no_name() {
    for stage in 0..5 {
        let mut leader = Worker::start(&[], &format!("dies {stage}"));
        for file in leader.hear().split(" and ") {
            assert_eq!(file, "/memfd:tributary-host (deleted)", "stage {stage}");
        }
        let name = leader.hear();
        assert!(!leader.child.wait().unwrap().success(), "the leader lives");
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&name), "stage {stage}");
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    let mut hex = String::new();
    bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
    hex
}

pub(super) fn from_hex<const N: usize>(hex: &str) -> [u8; N] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}
