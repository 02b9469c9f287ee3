//! Labs of namespaces: they come up, treat packets as their options say, and leave nothing behind.
//!
//! If this user may not create namespaces, the tests say so and end; with `CI=true` they fail.

mod support;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Ended, Running, await_that, await_within, is_alive, kill, run, signal, tributary};

/// A test's own lab, which goes down with this value.
struct TestLab(String);

fn lab(name: &str, words: &[&str]) -> Command {
    let mut command = tributary();
    command.arg("lab").arg(words[0]).args(["--name", name]).args(&words[1..]);
    command
}

/// Brings a lab up; if that is not permitted, says so and returns `None`.
fn up(test: &str, options: &[&str]) -> Option<TestLab> {
    let name = format!("{test}-{}", std::process::id());
    let mut words = vec!["up"];
    words.extend(options);
    let ended = run(&mut lab(&name, &words));
    if ended.status.code() == Some(2) {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!is_ci, "labs have to work in CI: {}", ended.stderr);
        // Not by a macro: the test runner captures what they print.
        let line = format!("\nNOT RUN: {test}: {}\n", ended.stderr);
        std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        return None;
    }
    assert!(ended.status.success(), "{}", ended.stderr);
    Some(TestLab(name))
}

impl TestLab {
    fn command(&self, words: &[&str]) -> Command {
        lab(&self.0, words)
    }

    /// A shell script on a member.
    fn shell(&self, member: &str, script: &str) -> Command {
        self.command(&["exec", member, "--", "sh", "-c", script])
    }

    /// The output of a shell script on a member, which must succeed.
    fn output(&self, member: &str, script: &str) -> String {
        let ended = run(&mut self.shell(member, script));
        assert!(ended.status.success(), "{script}: {}", ended.stderr);
        ended.stdout
    }

    /// Starts a Python program on a member.
    fn python(&self, member: &str, program: &str) -> Running {
        Running::start(&mut self.command(&["exec", member, "--", "python3", "-c", program]))
    }

    fn folder(&self) -> PathBuf {
        folder(&self.0)
    }

    fn supervisor(&self) -> u32 {
        let text =
            std::fs::read_to_string(self.folder().join("pid")).expect("a lab has a supervisor");
        text.trim().parse().expect("a number")
    }

    fn down(self) -> Ended {
        run(&mut self.command(&["down"]))
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        // Fails if the test took it down.
        let _ = self.command(&["down"]).stderr(Stdio::null()).status();
    }
}

fn folder(name: &str) -> PathBuf {
    let user = rustix::process::geteuid();
    let labs = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run/tributary-lab"),
        Some(path) => PathBuf::from(path).join("tributary-lab"),
        None => PathBuf::from(format!("/tmp/tributary-lab-{}", user.as_raw())),
    };
    labs.join(name)
}

/// Interfaces of the machine's own network.
fn machine_links() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/class/net").expect("the machine has a network");
    entries
        .map(|entry| entry.expect("the kernel lists it").file_name().to_string_lossy().into_owned())
        .collect()
}

/// How many mounts the machine has.
fn machine_mounts() -> usize {
    std::fs::read_to_string("/proc/self/mounts").expect("mounts").lines().count()
}

/// The process with this command line, each word with a zero after it.
fn process_with(command_line: &str) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").expect("processes");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it == command_line)
    })
}

/// Processes that name the lab's folder, members and daemons alike.
fn processes_of(name: &str) -> Vec<u32> {
    let folder = folder(name).display().to_string();
    let entries = std::fs::read_dir("/proc").expect("processes");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&folder)
        })
        .collect()
}

fn assert_nothing_left(name: &str) {
    assert!(!folder(name).exists(), "the folder of {name} is still there");
    let processes = processes_of(name);
    assert!(processes.is_empty(), "processes {processes:?} of {name} still run");
}

#[test]
fn a_lab_comes_up_and_goes_without_a_trace() {
    let (links, mounts) = (machine_links(), machine_mounts());
    let Some(lab) = up("trace", &["--hosts", "3", "--hosts-per-leaf", "2"]) else { return };
    let name = lab.0.clone();
    assert_eq!(machine_links(), links, "a lab changes the machine's network");
    assert!(processes_of(&name).len() > 8, "members and daemons are processes");

    let named: Vec<String> =
        (0..3).map(|host| lab.output(&format!("h{host}"), "hostname; hostname -i")).collect();
    assert_eq!(named, ["h0\n10.77.2.1\n", "h1\n10.77.2.2\n", "h2\n10.77.2.3\n"]);
    let interfaces = lab.output("leaf1", "ls /sys/class/net");
    assert_eq!(
        interfaces.split_whitespace().collect::<Vec<_>>(),
        ["br0", "h2", "leaf1-an", "lo", "spine"]
    );
    let program = env!("CARGO_BIN_EXE_tributary");
    let status = lab.output("h2", &format!("{program} status --json"));
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(3), "{status}");
    lab.output("h0", "echo x > /dev/shm/left; echo x > $TMPDIR/left");
    assert_eq!(lab.output("h1", "ls /dev/shm"), "", "hosts share no memory");
    assert!(!std::path::Path::new("/dev/shm/left").exists());

    let ended = lab.down();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_nothing_left(&name);
    assert_eq!(machine_links(), links);
    assert_eq!(machine_mounts(), mounts);
}

#[test]
fn commands_have_their_own_exit_codes_streams_and_signals() {
    let Some(lab) = up("exec", &["--hosts", "2"]) else { return };
    assert_eq!(run(&mut lab.shell("h1", "exit 7")).status.code(), Some(7));
    assert_eq!(run(&mut lab.shell("h1", "kill -KILL $$")).status.code(), Some(137));
    let ended = run(&mut lab.command(&["exec", "h0", "--", "no-such-program"]));
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no-such-program"), "{}", ended.stderr);
    let ended = run(&mut lab.command(&["exec", "h9", "--", "true"]));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("HOST 'h9': one of leaf0, manager"), "{}", ended.stderr);

    let mut child = lab
        .command(&["exec", "h1", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("piped").write_all(b"to and fro").expect("cat reads");
    assert_eq!(child.wait_with_output().expect("it ends").stdout, b"to and fro");

    let trap = "trap 'exit 9' TERM; while :; do sleep 0.05; done";
    let running = Running::start(&mut lab.shell("h0", trap));
    // It sleeps only once the trap is set.
    await_that("the script runs", || {
        let found = lab.output("h0", "ps axo args | grep -c '^[s]leep 0.05' || true");
        (found.trim() == "1").then_some(())
    });
    signal(running.id(), Signal::TERM);
    assert_eq!(running.wait().status.code(), Some(9));
}

/// The kernel interrupts a receive that has a timeout, for every process that ends.
#[test]
fn a_request_is_awaited_while_another_command_ends() {
    let Some(lab) = up("request", &["--hosts", "1"]) else { return };
    let running = Running::start(&mut lab.shell("h0", "exec sleep 1009"));
    let sleeper = await_that("the sleeper runs", || process_with("sleep\x001009\0"));
    let mut caller = UnixStream::connect(lab.folder().join("sockets/h0")).expect("it listens");
    // Gives the member time to accept the connection and to wait for the request.
    thread::sleep(Duration::from_millis(200));
    kill(sleeper);
    caller.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
    let answer = caller.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(answer, Err(ErrorKind::WouldBlock), "the member gave the request up");
    drop(caller);
    assert_eq!(running.wait().status.code(), Some(137));
}

#[test]
fn a_wait_in_vain_tells_what_processes_said() {
    let mut command = Command::new("sh");
    let running = Running::start(command.args(["-c", "echo out; echo err >&2; exec sleep 1013"]));
    let ended = Running::start(Command::new("sh").args(["-c", "echo last words >&2; exit 3"]));
    await_that("it has ended", || (!is_alive(ended.id())).then_some(()));
    let message = catch_unwind(AssertUnwindSafe(|| {
        await_within(Duration::from_millis(500), "the moon", || None::<()>);
    }));
    let message = message.unwrap_err().downcast::<String>().expect("panics are formatted");
    for words in ["nothing came of waiting: the moon", "it still runs\nstdout: out\nstderr: err\n"]
    {
        assert!(message.contains(words), "{message}");
    }
    assert!(message.contains("exit status: 3\nstdout: \nstderr: last words\n"), "{message}");
    drop(running);
}

#[test]
fn a_command_does_not_outlive_its_caller() {
    let Some(lab) = up("caller", &["--hosts", "1"]) else { return };
    // Ignores SIGHUP, so that only the SIGKILL after it ends the script.
    let running =
        Running::start(&mut lab.shell("h0", "trap '' HUP; sleep 1000 & wait; sleep 1001"));
    let sleepers = |lab: &TestLab| lab.output("h0", "ps axo args | grep -c '^[s]leep 100' || true");
    await_that("the script runs", || (sleepers(&lab).trim() == "1").then_some(()));
    kill(running.id());
    assert_eq!(running.wait().status.signal(), Some(9));
    await_that("the script ends", || (sleepers(&lab).trim() == "0").then_some(()));
}

/// If sessions are scheduled as groups, a lab puts all its processes into one control group, or says why
/// not.
#[test]
fn a_lab_is_scheduled_as_one_group_or_says_why_not() {
    let Some(lab) = up("group", &["--hosts", "1"]) else { return };
    let shown = run(&mut lab.command(&["status", "--json"]));
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it prints JSON");
    let scheduling = &shown["scheduling"];
    let Some(folder) = scheduling["together"].as_str() else {
        let says_why_not = scheduling["apart"].as_str().is_some_and(|reason| !reason.is_empty());
        assert!(scheduling == "alike" || says_why_not, "{scheduling}");
        return;
    };
    let of = |member: &str| lab.output(member, "setsid grep -c tributary-lab- /proc/self/cgroup");
    assert_eq!([of("h0"), of("manager")].map(|count| count.trim().to_owned()), ["1", "1"]);
    let folder = PathBuf::from(folder);
    assert!(folder.is_dir());
    assert!(lab.down().status.success());
    assert!(!folder.exists());
}

#[test]
fn a_host_has_the_cores_that_it_is_given_and_receives_on_them() {
    let refused = run(&mut lab("none", &["up", "--hosts", "64", "--cores-per-host", "4096"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("need 262145 cores"), "{}", refused.stderr);
    let options = ["--hosts", "1", "--cores-per-host", "1"];
    let Some(lab) = up("cores", &options) else { return };
    let cores = |member: &str| {
        lab.output(member, "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status")
    };
    let mask = |member: &str| {
        let text = lab.output(member, "cat /sys/class/net/eth0/queues/rx-0/rps_cpus");
        u32::from_str_radix(text.trim().rsplit(',').next().expect("a mask"), 16).expect("a mask")
    };
    let count = |member: &str| lab.output(member, "nproc").trim().parse::<usize>().expect("cores");
    assert_eq!(count("h0"), 1);
    assert!(count("manager") >= 1);
    assert_eq!(cores("leaf0-an"), cores("manager"));
    if let Ok(core) = cores("h0").trim().parse::<u32>() {
        assert!(core >= 32 || mask("h0") == 1 << core, "{:x}", mask("h0"));
        assert!(core >= 32 || mask("manager") & mask("h0") == 0, "{:x}", mask("manager"));
    }
}

#[test]
fn launchers_are_told_where_the_hosts_are() {
    let Some(lab) = up("launch", &["--hosts", "2"]) else { return };
    let started = |words: &[&str]| {
        let run_words = ["run", "--plain", "--ranks-per-host", "3", "--"];
        let ended = run(&mut lab.command(&[&run_words, words].concat()));
        assert!(ended.status.success(), "{}", ended.stderr);
        ended
    };
    for variable in ["PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile"] {
        let hosts = started(&["sh", "-c", &format!("cat ${variable}")]);
        assert_eq!(hosts.stdout, "h0 slots=3\nh1 slots=3\n", "{variable}");
        assert_eq!(hosts.stderr, "");
    }
    for variable in ["PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC"] {
        let other = started(&["sh", "-c", &format!("${variable} h1 hostname")]);
        assert_eq!(other.stdout, "h1\n", "{variable}");
    }
    let hint = started(&["true", "--map-by", ":OVERSUBSCRIBE"]).stderr;
    assert!(hint.contains("--ranks-per-host"), "{hint}");
}

#[test]
fn two_labs_of_the_same_addresses_do_not_meet() {
    let Some(one) = up("one", &["--hosts", "1"]) else { return };
    let again = run(&mut one.command(&["up"]));
    assert_eq!(again.status.code(), Some(1));
    assert!(again.stderr.contains("is up already"), "{}", again.stderr);
    let two = up("two", &["--hosts", "2"]).expect("the first one came up");
    assert_eq!(one.output("h0", "hostname -i"), two.output("h0", "hostname -i"));
    let listed = run(tributary().args(["lab", "status", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    for lab in [&one, &two] {
        let is_up = |entry: &serde_json::Value| entry["name"] == lab.0 && entry["state"] == "up";
        assert!(listed.as_array().unwrap().iter().any(is_up), "{listed}");
    }
    let name = one.0.clone();
    assert!(one.down().status.success());
    assert_nothing_left(&name);
    assert_eq!(two.output("h1", "hostname"), "h1\n");
}

#[test]
fn a_killed_supervisor_takes_everything_along_and_down_removes_the_rest() {
    let Some(lab) = up("supervisor", &["--hosts", "2"]) else { return };
    let running = Running::start(&mut lab.shell("h0", "sleep 1000"));
    await_that("the command runs", || {
        let found = lab.output("h0", "ps axo args | grep -c '^[s]leep 1000' || true");
        (found.trim() == "1").then_some(())
    });
    let supervisor = lab.supervisor();
    kill(supervisor);
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("the member ended"), "{}", ended.stderr);
    await_that("the supervisor ends", || (!is_alive(supervisor)).then_some(()));
    await_that("the members end", || processes_of(&lab.0).is_empty().then_some(()));
    let ended = run(&mut lab.command(&["exec", "h0", "--", "true"]));
    assert!(ended.stderr.contains("is not running"), "{}", ended.stderr);
    let name = lab.0.clone();
    assert!(lab.down().status.success());
    assert_nothing_left(&name);
}

#[test]
fn up_killed_at_any_time_leaves_nothing_that_down_does_not_remove() {
    let Some(lab) = up("probe", &["--hosts", "1"]) else { return };
    drop(lab);
    let links = machine_links();
    for (round, after_ms) in [0, 5, 10, 20, 40, 80, 160, 320, 640].into_iter().enumerate() {
        let name = format!("up{round}-{}", std::process::id());
        let mut child = lab_quietly(&name, &["up", "--hosts", "3", "--hosts-per-leaf", "1"]);
        thread::sleep(Duration::from_millis(after_ms));
        kill(child.id());
        child.wait().expect("the child is ours");
        // The lab may have ended by itself, or not have begun.
        let ended = run(&mut self::lab(&name, &["down"]));
        let is_none = ended.stderr.contains("there is no lab");
        assert!(ended.status.success() || is_none, "after {after_ms} ms: {}", ended.stderr);
        // A supervisor whose `up` is gone removes the folder and ends a moment later.
        await_that("all processes end", || processes_of(&name).is_empty().then_some(()));
        assert_nothing_left(&name);
    }
    assert_eq!(machine_links(), links);
}

fn lab_quietly(name: &str, words: &[&str]) -> std::process::Child {
    lab(name, words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

#[test]
fn where_namespaces_are_refused_up_says_so_with_exit_code_2() {
    let Some(lab) = up("allowed", &["--hosts", "1"]) else { return };
    drop(lab);
    // In its own user namespace, root may forbid itself further network namespaces.
    let name = format!("refused-{}", std::process::id());
    let script = format!(
        "echo 0 > /proc/sys/user/max_net_namespaces && exec '{}' lab up --name {name}",
        env!("CARGO_BIN_EXE_tributary")
    );
    let ended =
        run(Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", &script]));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("does not let this user have"), "{}", ended.stderr);
    assert_nothing_left(&name);
}

#[test]
fn a_lab_with_delay_that_can_have_no_devices_says_so_with_exit_code_2() {
    let Some(lab) = up("devices", &["--hosts", "1", "--delay", "1ms"]) else { return };
    drop(lab);
    // A mount namespace of its own, where the device is another one.
    let name = format!("no-tun-{}", std::process::id());
    let script = format!(
        "mount --bind /dev/full /dev/net/tun && mount -o remount,bind,ro,nodev /dev/net/tun; \
         exec '{}' lab up --delay 1ms --name {name}",
        env!("CARGO_BIN_EXE_tributary")
    );
    let ended = run(Command::new("unshare").args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
    ]));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("needs /dev/net/tun"), "{}", ended.stderr);
    assert_nothing_left(&name);
}

/// Counts datagrams until an empty one arrives.
const RECEIVER: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
s.bind(('0.0.0.0', 9000))
count = 0
while s.recv(2048) != b'end':
    count += 1
print(count)
";

const SENDER: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(4000):
    s.sendto(b'%d' % number, ('h1', 9000))
for _ in range(64):
    s.sendto(b'end', ('h1', 9000))
";

/// Packets that a member's rules have dropped as they came in at an interface.
fn dropped(lab: &TestLab, member: &str, interface: &str) -> u64 {
    let text = lab.output(member, &format!("nft list chain netdev lab {interface}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Starts a script on h1 of a lab that receives on port 9000, and waits until it listens.
fn receiving(lab: &TestLab, script: &str) -> Running {
    let receiver = lab.python("h1", script);
    await_that("the receiver listens", || {
        lab.output("h1", "ss -ltun").contains(":9000").then_some(())
    });
    receiver
}

#[test]
fn links_lose_the_share_of_packets_they_are_told_to() {
    let Some(lab) = up("loss", &["--hosts", "2", "--loss", "10"]) else { return };
    let receiver = receiving(&lab, RECEIVER);
    let sent = lab.python("h0", SENDER).wait();
    assert!(sent.status.success(), "{}", sent.stderr);
    let received: u64 = receiver.wait().stdout.trim().parse().expect("a count");
    // Two links in a row, each of which loses a tenth: 3,240 of 4,000 arrive, give or take 25.
    assert!((3_000..3_480).contains(&received), "{received} of 4000 datagrams arrived");
    // The switch drops about a tenth of what h0 sends, and h1 a tenth of what the switch sends.
    let up = dropped(&lab, "leaf0", "h0");
    let down = dropped(&lab, "h1", "eth0");
    assert!((280..540).contains(&up) && (240..480).contains(&down), "dropped {up} and {down}");
}

/// Packets that h0 of a lab sends for 1 MiB over TCP to h1.
fn packets_of_a_mebibyte(lab: &TestLab) -> u64 {
    let receiver = receiving(
        lab,
        "
import socket
s = socket.create_server(('0.0.0.0', 9000)).accept()[0]
while s.recv(65536):
    pass
",
    );
    let sent = || -> u64 {
        let text = lab.output("h0", "cat /sys/class/net/eth0/statistics/tx_packets");
        text.trim().parse().expect("a count")
    };
    let before = sent();
    let sender = "
import socket
socket.create_connection(('h1', 9000)).sendall(bytes(1 << 20))
";
    let ended = lab.python("h0", sender).wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(receiver.wait().status.success());
    sent() - before
}

#[test]
fn packets_are_single_only_where_they_are_told_to_be() {
    let Some(merged) = up("merged", &["--hosts", "2"]) else { return };
    let single = up("single", &["--hosts", "2", "--single-packets"]).expect("the first came up");
    // 1,500 bytes with 52 of headers, so 725 of them.
    let packets = packets_of_a_mebibyte(&single);
    assert!(packets >= 725, "{packets}");
    let packets = packets_of_a_mebibyte(&merged);
    assert!(packets < 725 / 2, "{packets}");
}

#[test]
fn links_carry_no_more_than_their_rate() {
    let Some(lab) = up("rate", &["--hosts", "2", "--rate", "10mbit"]) else { return };
    let receiver = receiving(
        &lab,
        "
import socket
s = socket.create_server(('0.0.0.0', 9000)).accept()[0]
count = 0
while chunk := s.recv(65536):
    count += len(chunk)
s.send(b'%d' % count)
",
    );
    let started = Instant::now();
    let sender = lab.python(
        "h0",
        "
import socket
s = socket.create_connection(('h1', 9000))
s.sendall(bytes(1_000_000))
s.shutdown(socket.SHUT_WR)
print(s.recv(16).decode())
",
    );
    assert_eq!(sender.wait().stdout.trim(), "1000000");
    // The bucket lets 128 KiB pass at once, the rest at 10 Mbit/s: 0.69 s.
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(650), "1 MB took {elapsed:?}");
    assert!(receiver.wait().status.success());
    let limits = lab.output("h0", "tc -s qdisc show dev eth0");
    assert!(limits.contains("rate 10Mbit") && !limits.contains("overlimits 0 "), "{limits}");
}

/// The findings of `lab check`, which must find no fault.
fn checked(lab: &TestLab, frames: &str) -> serde_json::Value {
    let ended = run(&mut lab.command(&["check", "--frames", frames, "--json"]));
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[test]
fn a_lab_with_delay_holds_frames_in_order_and_loses_them_at_each_receiver() {
    let shape = ["--hosts", "4", "--hosts-per-leaf", "2"];
    let links = ["--delay", "2ms", "--spine-delay", "1ms", "--jitter", "200us", "--rate", "10gbit"];
    let options: Vec<&str> = shape.into_iter().chain(links).chain(["--loss", "5"]).collect();
    let Some(lab) = up("delay", &options) else { return };
    let found = checked(&lab, "2000");
    let flows = found["flows"].as_array().expect("a list");
    assert_eq!(flows.len(), 6, "three receivers, each alone and with the others");
    for flow in flows {
        let hold_ns = if flow["receiver"] == "h1" { 2_000_000 } else { 3_000_000 };
        assert_eq!(flow["hold_ns"], hold_ns, "{flow}");
        assert!(flow["arrivals"]["ways_ns"][0].as_i64().expect("a number") >= hold_ns, "{flow}");
        assert_eq!(flow["arrivals"]["disordered"], 0, "{flow}");
        // 100 of 2,000 give or take 10; the check allows for five times that.
        let received = flow["arrivals"]["received"].as_u64().expect("a count");
        assert!((1_850..=1_950).contains(&received), "{flow}");
    }
    for (name, port) in
        found["switch"]["ports"].as_array().expect("a list").iter().map(|it| (&it[0], &it[1]))
    {
        assert_eq!([&port["overflowed"], &port["unread"], &port["refused"]], [0, 0, 0], "{name}");
        assert!(
            port["lost"].as_u64() > Some(0) || port["sent"].as_u64() < Some(1_000),
            "{name}: {port}"
        );
    }
    let status = run(&mut lab.command(&["status"])).stdout;
    assert!(
        status.contains("links: delay 2ms, across the spine 1ms more, jitter 200us"),
        "{status}"
    );
    assert!(status.contains("processor time: switch"), "{status}");
}

#[test]
fn a_lab_with_delay_goes_before_other_programs() {
    for (options, goes_first) in
        [(&["--hosts", "1", "--delay", "1ms"][..], true), (&["--hosts", "1"], false)]
    {
        let Some(lab) = up("first", options) else { return };
        let shown = run(&mut lab.command(&["status", "--json"]));
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it prints JSON");
        let Some(folder) = shown["scheduling"]["together"].as_str() else { return };
        let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).ok();
        let share = read("cpu.weight").or_else(|| read("cpu.shares")).expect("a group has a share");
        let share: u32 = share.trim().parse().expect("a number");
        assert_eq!(share >= 10_000, goes_first, "{share} of the group of {options:?}");
    }
}

/// A loss behind the interface would not be seen by programs in the kernel that take packets there.
#[test]
fn a_lab_with_delay_loses_packets_before_they_reach_the_interface() {
    let Some(lab) = up("before", &["--hosts", "2", "--delay", "1ms", "--loss", "10"]) else {
        return;
    };
    let arrived = || -> u64 {
        let text = lab.output("h1", "cat /sys/class/net/eth0/statistics/rx_packets");
        text.trim().parse().expect("a count")
    };
    let receiver = receiving(&lab, RECEIVER);
    let before = arrived();
    let sent = lab.python("h0", SENDER).wait();
    assert!(sent.status.success(), "{}", sent.stderr);
    let received: u64 = receiver.wait().stdout.trim().parse().expect("a count");
    assert!((3_500..3_700).contains(&received), "{received} of 4000 datagrams arrived");
    // The 64 at the end, and what hosts say now and then.
    assert!(arrived() - before < received + 100, "{} came to the interface", arrived() - before);
}

#[test]
fn a_lab_with_delay_carries_segments_together_unless_told_otherwise() {
    let Some(lab) = up("segments", &["--hosts", "2", "--delay", "1ms"]) else { return };
    let together = packets_of_a_mebibyte(&lab);
    drop(lab);
    let lab = up("segments", &["--hosts", "2", "--delay", "1ms", "--single-packets"])
        .expect("the first came up");
    let single = packets_of_a_mebibyte(&lab);
    assert!(together < 400 && single > 700, "{together} together, {single} single");
}

#[test]
fn the_switch_of_a_lab_with_delay_ends_with_its_supervisor() {
    let Some(lab) = up("switch", &["--hosts", "2", "--delay", "1ms"]) else { return };
    let name = lab.0.clone();
    let switch = || -> bool {
        processes_of(&name).iter().any(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            text.is_ok_and(|text| text.trim() == "lab-switch")
        })
    };
    assert!(switch(), "a lab with delay has a switch");
    kill(lab.supervisor());
    await_that("everything ends", || processes_of(&name).is_empty().then_some(()));
    assert!(lab.down().status.success());
    assert_nothing_left(&name);
}

#[test]
fn checks_of_labs_without_delay_are_refused() {
    let Some(lab) = up("undelayed", &["--hosts", "2"]) else { return };
    let ended = run(&mut lab.command(&["check"]));
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no delay"), "{}", ended.stderr);
}

/// All networks of a machine share one table of neighbours, which has 1,024 entries: 35 members that all speak with each
/// other would need 1,190.
#[test]
fn members_of_a_large_lab_never_ask_for_each_others_hardware_addresses() {
    let options = ["--hosts", "33", "--hosts-per-leaf", "33", "--nodes", "spine"];
    let Some(lab) = up("large", &options) else { return };
    let script = "for at in $(seq 33); do echo > /dev/udp/10.77.2.$at/9; done; \
                  ip neighbour | grep -c PERMANENT; ip neighbour | grep -vc PERMANENT || true";
    for host in 0..33 {
        let counts = lab.output(&format!("h{host}"), &format!("bash -c '{script}'"));
        assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["34", "0"], "h{host}");
    }
}
