//! `tributary run` with ordinary commands: their environment, exit codes and reports. tests/mpi runs real MPI
//! programs.

mod support;

use std::process::Command;

use support::{Running, run, tributary};
use tempfile::TempDir;

/// A folder with a preload library. It is empty, so the loader warns and ignores it.
fn libraries() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be written");
    std::fs::write(folder.path().join("libtributary.so"), "")
        .expect("a temporary folder can be written");
    folder
}

fn shell(libraries: &TempDir, options: &str, script: &str) -> Command {
    let mut command = tributary();
    command.env("TRIBUTARY_LIBRARY_PATH", libraries.path()).env("TRIBUTARY_LOG", "off").arg("run");
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

#[test]
fn exit_codes_and_signals_are_the_commands_own() {
    let libraries = libraries();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)] {
        let ended = run(&mut shell(&libraries, "", script));
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("no report"), "{}", ended.stderr);
    }
}

#[test]
fn the_command_gets_library_fabric_and_knobs() {
    let libraries = libraries();
    let script = r#"cat "$TRIBUTARY_TOKEN_FILE" >/dev/null && echo "$LD_PRELOAD|$TRIBUTARY_HOSTS|$TRIBUTARY_TRANSPORT|$TRIBUTARY_MANAGER""#;
    let mut command = shell(&libraries, "--hosts 3 --transport tcp", script);
    let ended = run(command.env("LD_PRELOAD", "/no/such/other.so"));
    let words: Vec<&str> = ended.stdout.trim().split('|').collect();
    let library = libraries.path().canonicalize().unwrap().join("libtributary.so");
    assert_eq!(words[0], format!("/no/such/other.so:{}", library.display()), "the user's first");
    assert_eq!(words[1..3], ["3", "tcp"]);
    assert!(words[3].starts_with("127.0.0.1:"), "{}", words[3]);
}

/// The loader ends a path at a space or a colon.
#[test]
fn a_library_in_a_folder_with_a_space_gets_to_programs() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["my programs", "a:b"] {
        let inside = folder.path().join(name);
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("libtributary.so"), "the library").unwrap();
        let mut command = tributary();
        command.env("TRIBUTARY_LIBRARY_PATH", &inside).env("TRIBUTARY_LOG", "off");
        let ended = run(command.args(["run", "--", "sh", "-c", "cat \"$LD_PRELOAD\""]));
        assert_eq!(ended.stdout, "the library", "{}", ended.stderr);
        assert!(ended.stderr.contains("has a space or a colon"), "{}", ended.stderr);
    }
}

#[test]
fn a_long_path_of_temporary_files_is_no_obstacle() {
    let libraries = libraries();
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("x".repeat(100));
    std::fs::create_dir(&deep).unwrap();
    let mut command = shell(&libraries, "--hosts 2", "exit 5");
    let ended = run(command.env("TMPDIR", &deep));
    assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
}

/// The folders of a run are its user's alone, and usable by it.
#[test]
fn folders_have_their_mode_whatever_the_mask_is() {
    let libraries = libraries();
    for mask in ["000", "022", "177", "777"] {
        let script = "stat -c %a \"${TRIBUTARY_REPORT%/*}\" \"${TRIBUTARY_TOKEN_FILE%/*}\"";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {mask}; exec \"$0\" \"$@\"")]);
        let words = shell(&libraries, "--hosts 2", script);
        command.arg(words.get_program()).args(words.get_args());
        for (name, value) in words.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let ended = run(&mut command);
        assert_eq!(ended.stdout, "700\n700\n", "mask {mask}: {}", ended.stderr);
    }
}

#[test]
fn ranks_of_a_launcher_are_told_that_run_comes_first() {
    let libraries = libraries();
    for words in [&["run", "./app", "7"][..], &["run", "--", "./app", "7"], &["run", "--", "true"]]
    {
        let mut command = tributary();
        command.env("TRIBUTARY_LIBRARY_PATH", libraries.path()).args(words);
        let ended = run(command.env("PMI_SIZE", "4").env("PMI_RANK", "1"));
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        let told = format!("tributary run -- mpirun -n 4 {}", words[words.len() - 2..].join(" "));
        let told = told.replace("-- true", "true").replace("run ./app", "./app");
        assert!(ended.stderr.trim().ends_with(&told), "{told}: {}", ended.stderr);
    }
}

/// What is no file must not become one.
#[test]
fn a_report_to_a_pipe_a_link_or_standard_output_is_written_there() {
    let libraries = libraries();
    let script = r#"printf '{"run_id":"%s","jobs":1,"in_host":5,"in_tree":7,"passed_through":2,"reasons":{},
        "communicators":[]}' "$TRIBUTARY_RUN_ID" > "$TRIBUTARY_REPORT"; echo done"#;
    let (file, link) = (libraries.path().join("file"), libraries.path().join("link"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    let ended = run(&mut shell(&libraries, &format!("--report {}", link.display()), script));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(told["in_tree"], 7);
    let ended = run(&mut shell(&libraries, "--report /dev/stdout", script));
    let told = ended.stdout.strip_prefix("done\n").expect("the command's output comes first");
    assert_eq!(serde_json::from_str::<serde_json::Value>(told).unwrap()["in_tree"], 7);
    let pipe = libraries.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .unwrap();
    let ended = run(&mut shell(&libraries, &format!("--report {}", pipe.display()), script));
    assert!(ended.stderr.contains("nobody reads it"), "{}", ended.stderr);
    assert!(!pipe.symlink_metadata().unwrap().is_file());
}

/// Ranks of one host need no manager, and those of several machines would not reach one of this machine alone.
#[test]
fn a_manager_is_started_for_emulated_hosts_only() {
    let libraries = libraries();
    let script = "echo manager=$TRIBUTARY_MANAGER token=$TRIBUTARY_TOKEN_FILE";
    let ended = run(&mut shell(&libraries, "", script));
    assert_eq!(ended.stdout, "manager= token=\n", "{}", ended.stderr);
    let ended = run(&mut shell(&libraries, "--hosts 2", script));
    assert!(ended.stdout.starts_with("manager=127.0.0.1:"), "{}", ended.stdout);
    let mut command = shell(&libraries, "--hosts 2", script);
    let ended = run(command.env("TRIBUTARY_FABRIC", "off"));
    assert_eq!(ended.stdout, "manager= token=\n", "{}", ended.stderr);
}

#[test]
fn a_named_manager_is_left_alone() {
    let libraries = libraries();
    let mut command = shell(&libraries, "", "echo $TRIBUTARY_MANAGER");
    let ended = run(command.env("TRIBUTARY_MANAGER", "192.0.2.1:7470"));
    assert_eq!(ended.stdout, "192.0.2.1:7470\n");
}

#[test]
fn a_signal_is_passed_on() {
    let libraries = libraries();
    let script = "trap 'exit 9' TERM; echo > \"$READY\"; while :; do sleep 0.05; done";
    let ready = libraries.path().join("ready");
    let running = Running::start(shell(&libraries, "", script).env("READY", &ready));
    support::await_that("the command starts", || ready.exists().then_some(()));
    support::signal(running.id(), rustix::process::Signal::TERM);
    let ended = running.wait();
    assert_eq!(ended.status.code(), Some(9), "{}", ended.stderr);
}

#[test]
fn a_report_is_shown_and_kept() {
    let libraries = libraries();
    let script = r#"printf '{"run_id":"%s","jobs":1,"in_host":5,"in_tree":7,"passed_through":2,
        "reasons":{"user operator":2},"communicators":[{"label":"world","ranks":4,"hosts":2,
        "communicators":1,"collectives":{"allreduce":{"in_host":5,"in_tree":7,"passed_through":2,
        "reasons":{"user operator":2}}}}]}' "$TRIBUTARY_RUN_ID" > "$TRIBUTARY_REPORT""#;
    let kept = libraries.path().join("report.json");
    let options = format!("--report {}", kept.display());
    for options in ["", &options, "--report -"] {
        let ended = run(&mut shell(&libraries, options, script));
        assert!(ended.status.success());
        assert!(
            ended.stderr.contains("tributary: 5 in_host, 7 in_tree, 0 direct, 2 passed_through"),
            "{options}: {}",
            ended.stderr
        );
        assert!(ended.stderr.contains("2 user operator"), "{}", ended.stderr);
    }
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
    assert_eq!(report["in_tree"], 7);
}

/// Measuring costs time, so only a report that somebody asks for tells times.
#[test]
fn times_and_offloading_are_switched_as_asked() {
    let libraries = libraries();
    let script = r#"echo "times=$TRIBUTARY_TIMES offload=$TRIBUTARY_OFFLOAD""#;
    let kept = libraries.path().join("report.json");
    let report = format!("--report {}", kept.display());
    for (options, said) in [
        ("", "times=off offload=\n"),
        ("--offload off", "times=off offload=off\n"),
        ("--report -", "times= offload=\n"),
        (&report, "times= offload=\n"),
    ] {
        let ended = run(&mut shell(&libraries, options, script));
        assert_eq!(ended.stdout, said, "{options}");
    }
    let mut asked = shell(&libraries, "", script);
    assert_eq!(run(asked.env("TRIBUTARY_REPORT", &kept)).stdout, "times= offload=\n");
    let mut refused = shell(&libraries, &report, script);
    assert_eq!(run(refused.env("TRIBUTARY_TIMES", "off")).stdout, "times=off offload=\n");
}

#[test]
fn what_is_missing_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let ended = run(&mut shell(&empty, "", "true"));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("TRIBUTARY_LIBRARY_PATH"), "{}", ended.stderr);
    assert!(ended.stderr.contains("libtributary.so"), "{}", ended.stderr);
    let libraries = libraries();
    for path in ["/no/such/folder/report.json", "/"] {
        let options = format!("--report {path}");
        let ended = run(&mut shell(&libraries, &options, "true"));
        assert_eq!(ended.status.code(), Some(2));
        assert!(ended.stderr.contains("--report") && ended.stderr.contains(path));
    }
}
