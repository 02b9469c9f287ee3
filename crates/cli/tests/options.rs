//! The command line: help, errors, knobs, completions.

mod support;

use std::path::PathBuf;

use support::{run, tributary};

/// Every subcommand's help.
const PAGES: &[&[&str]] = &[
    &[],
    &["run"],
    &["report"],
    &["bench"],
    &["manager"],
    &["node"],
    &["rings"],
    &["status"],
    &["tree"],
    &["open"],
    &["drain"],
    &["listen"],
    &["config"],
    &["model"],
    &["tune"],
    &["sim"],
    &["sim", "figure"],
    &["sim", "run"],
    &["sim", "replay"],
    &["sim", "advise"],
    &["sim", "calibrate"],
    &["sim", "sensitivity"],
    &["swarm"],
    &["token"],
    &["token", "certificate"],
    &["token", "create"],
    &["completions"],
    &["manual"],
    &["bench-rank"],
    &["lab"],
    &["lab", "up"],
    &["lab", "down"],
    &["lab", "exec"],
    &["lab", "run"],
    &["lab", "status"],
    &["lab", "check"],
];

fn help(page: &[&str], columns: usize) -> String {
    let columns = columns.to_string();
    let ended = run(tributary().args(page).arg("--help").env("COLUMNS", columns));
    assert!(ended.status.success());
    ended.stdout
}

/// Compares help texts with those in `snapshots`; `TRIBUTARY_BLESS=1` rewrites them.
#[test]
fn help_is_as_reviewed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let bless = std::env::var_os("TRIBUTARY_BLESS").is_some();
    for page in PAGES {
        let text = help(page, 100);
        let name = if page.is_empty() { "tributary".to_owned() } else { page.join("-") };
        let path = folder.join(format!("{name}.txt"));
        if bless {
            std::fs::write(&path, &text).unwrap();
        }
        let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, reviewed, "{}", path.display());
    }
}

/// The text after a page's options: examples keep their lines, and paragraphs fill theirs.
#[test]
fn examples_and_paragraphs_are_readable_at_any_width() {
    for page in PAGES {
        let epilogue = |columns| {
            let text = help(page, columns);
            text.split_once("\nExamples:\n").map(|(_, epilogue)| epilogue.to_owned())
        };
        let [Some(narrow), Some(wide)] = [80, 100].map(epilogue) else { continue };
        let examples = |text: &str| text.split("\n\n").next().map(str::to_owned);
        assert_eq!(examples(&narrow), examples(&wide), "{page:?}");
        for (text, columns) in [(narrow, 80), (wide, 100)] {
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.iter().all(|line| line.len() <= columns), "{page:?}:\n{text}");
            for pair in lines.windows(2).filter(|pair| !pair[0].starts_with(' ')) {
                let next = pair[1].split(' ').next().unwrap_or_default();
                let is_full = pair[0].len() + 1 + next.len() > columns;
                assert!(is_full || pair.iter().any(|line| line.is_empty()), "{page:?}:\n{text}");
            }
        }
    }
}

/// Each command line, and the words that the one line on standard error must contain.
const REFUSED: &[(&str, &[&str])] = &[
    ("lab up --hosts 65", &["--hosts", "65", "1 to 64"]),
    ("lab up --rate fast", &["--rate", "fast", "10gbit"]),
    ("lab up --delay 1s", &["--delay", "1s", "1ms"]),
    ("lab up --jitter 1ms", &["--delay"]),
    ("lab up --loss 51", &["--loss", "51", "0 to 50"]),
    ("lab down --name A/B", &["--name", "A/B", "lower-case"]),
    ("lab run --plain --report a -- true", &["--plain", "--report"]),
    ("bench", &["COLLECTIVE", "launcher"]),
    ("bench --peer allreduce", &["--peer", "COLLECTIVE"]),
    ("bench allreduce -- sh", &["COLLECTIVE", "LAUNCHER"]),
    ("bench --procs 2 -- sh", &["--procs", "LAUNCHER"]),
    ("bench -- no-such-launcher -n 8", &["LAUNCHER", "no-such-launcher"]),
    ("bench --collectives alltoall -- sh", &["--collectives", "alltoall", "reduce_scatter"]),
    ("bench --sizes 6 -- sh", &["--sizes", "6", "4 bytes"]),
    ("bench --rounds 0 -- sh", &["--rounds", "1 to 100"]),
    ("bench --mpicc no-such-compiler -- sh", &["--mpicc", "no-such-compiler"]),
    ("nonsense", &["nonsense"]),
    ("run --nonsense -- true", &["--nonsense"]),
    ("run", &["COMMAND"]),
    ("run --hosts 0 -- true", &["--hosts", "'0'", "1 to 64"]),
    ("run --hosts 65 -- true", &["--hosts", "'65'", "1 to 64"]),
    ("run --hosts two -- true", &["--hosts", "'two'", "1 to 64"]),
    ("run --hosts -- true", &["--hosts"]),
    ("run --transport ib -- true", &["--transport", "'ib'", "auto", "shm", "tcp"]),
    ("run -- /no/such/program", &["COMMAND", "/no/such/program"]),
    ("run -- no-such-program-anywhere", &["COMMAND", "no-such-program-anywhere"]),
    ("run --offload maybe -- true", &["--offload", "'maybe'", "on", "off"]),
    ("report", &["FILE"]),
    ("report /no/such/report.json", &["FILE", "/no/such/report.json", "tributary run --report"]),
    ("bench", &["COLLECTIVE"]),
    ("bench alltoall", &["'alltoall'", "allreduce", "bcast"]),
    ("bench allreduce --procs 0", &["--procs", "'0'", "1 to 256"]),
    ("bench allreduce --hosts 5", &["--hosts", "'5'", "4"]),
    ("bench allreduce --sizes 8,x", &["--sizes", "'x'", "1K"]),
    ("bench allreduce --sizes 6", &["--sizes", "'6'", "4 bytes"]),
    ("bench allreduce --sizes 2G", &["--sizes", "'2G'", "1G"]),
    ("bench allreduce --dtype f31", &["--dtype", "'f31'", "f32", "bf16"]),
    ("bench allreduce --op xor", &["--op", "'xor'", "sum"]),
    ("bench allreduce --dtype f32 --op bit-and", &["--op", "'bit-and'", "f32"]),
    ("bench barrier --op sum", &["--op", "'sum'"]),
    ("bench allreduce --algo ring", &["--algo", "'ring'", "host", "tree"]),
    ("bench allreduce --iters 0", &["--iters", "'0'"]),
    ("manager --listen here --token-file t", &["--listen", "'here'", "127.0.0.1"]),
    ("manager --listen 127.0.0.1:0 --token-file /no/such", &["--token-file", "'/no/such'"]),
    ("node --manager x --token-file t --listen 127.0.0.1:0 --name n", &["--manager", "'x'"]),
    ("status --manager 127.0.0.1:9", &["--token-file"]),
    ("status --manager 127.0.0.1:9 --token-file /no/such", &["--token-file", "'/no/such'"]),
    ("completions cmd", &["'cmd'", "bash", "zsh", "fish"]),
    ("token certificate /no/such", &["FILE", "'/no/such'"]),
    ("token create /no/such/folder/token", &["FILE", "'/no/such/folder/token'"]),
];

#[test]
fn bad_options_get_one_line_and_exit_code_2() {
    for (line, names) in REFUSED {
        let ended = run(tributary().args(line.split(' ')));
        assert_eq!(ended.status.code(), Some(2), "{line}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{line}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{line}");
        for name in *names {
            assert!(ended.stderr.contains(name), "{line}: no {name} in {}", ended.stderr);
        }
    }
}

#[test]
fn bad_files_get_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let create = || run(tributary().args(["token", "create"]).arg(&token));
    assert!(create().status.success());
    let again = create();
    assert_eq!(again.status.code(), Some(2), "{}", again.stderr);

    let bad = folder.path().join("fabric.toml");
    std::fs::write(&bad, "root = \"a\"\n[[swich]]\n").unwrap();
    let manager = |topology: &std::path::Path| {
        run(tributary()
            .args(["manager", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(&token)
            .arg("--topology")
            .arg(topology))
    };
    for topology in [&bad, &folder.path().join("none.toml")] {
        let ended = manager(topology);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("--topology"), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }

    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let ended =
        run(tributary().args(["manager", "--listen", "127.0.0.1:0", "--token-file"]).arg(&token));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("0644"), "{}", ended.stderr);
}

#[test]
fn a_bad_knob_is_named() {
    let ended =
        run(tributary().args(["bench", "allreduce", "--hosts", "2"]).env("TRIBUTARY_OSOS", "no"));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("TRIBUTARY_OSOS 'no'"), "{}", ended.stderr);
    let ended = run(tributary().arg("config").env("TRIBUTARY_LOG", "a=b=c"));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("TRIBUTARY_LOG 'a=b=c'"), "{}", ended.stderr);
}

#[test]
fn a_misspelt_knob_is_named_with_the_nearest() {
    let ended = run(tributary().arg("config").env("TRIBUTARY_MANAGR", "10.0.0.1:7470"));
    assert!(ended.status.success());
    let told = "tributary: TRIBUTARY_MANAGR is no knob and has no effect; the nearest is TRIBUTARY_MANAGER\n";
    assert_eq!(ended.stderr, told);
}

#[test]
fn config_tells_defaults_from_the_environment() {
    let ended = run(tributary().arg("config").env("TRIBUTARY_HOSTS", "3"));
    assert!(ended.status.success());
    let words = |name: &str| -> Vec<String> {
        let line = ended.stdout.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().take(4).map(str::to_owned).collect()
    };
    assert_eq!(words("TRIBUTARY_HOSTS"), ["TRIBUTARY_HOSTS", "3", "hosts", "environment"]);
    assert_eq!(words("TRIBUTARY_OSOS")[3], "default");

    let ended = run(tributary().args(["config", "--json"]).env("TRIBUTARY_HOSTS", "3"));
    let mut rows: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let machine = rows.pop().unwrap();
    assert!(machine["machine"]["cpus"].as_u64().unwrap() > 0);
    assert!(machine["layout"]["scratch_bytes"].as_u64().unwrap() >= 128 * 1024);
    assert_eq!(machine["rings"]["service"], "/run/tributary/rings.socket");
    let hosts = rows.iter().find(|row| row["name"] == "TRIBUTARY_HOSTS").unwrap();
    assert_eq!((hosts["value"].as_str(), hosts["default"].as_str()), (Some("3"), Some("1")));
    assert!(rows.iter().all(|row| !row["help"].as_str().unwrap().is_empty()));
}

#[test]
fn completions_exist_for_every_shell() {
    for (shell, mark) in
        [("bash", "_tributary()"), ("zsh", "#compdef tributary"), ("fish", "complete -c tributary")]
    {
        let ended = run(tributary().args(["completions", shell]));
        assert!(ended.status.success());
        assert!(ended.stdout.contains(mark), "{shell}");
        assert!(ended.stdout.contains("allreduce"), "{shell}");
    }
}

#[test]
fn manual_pages_exist_for_every_command_that_help_shows() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(tributary().arg("manual").arg(folder.path())).status.success());
    for page in PAGES.iter().filter(|page| **page != ["bench-rank"]) {
        let name = [&["tributary"], *page].concat().join("-");
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {name} 1")), "{name}: {text}");
    }
    assert!(!folder.path().join("tributary-bench-rank.1").exists());

    let ended = run(tributary().args(["manual", "/nowhere"]));
    assert!(ended.stderr.contains("FOLDER '/nowhere'"), "{}", ended.stderr);
}

#[test]
fn version_and_an_absent_manager() {
    let named = format!("tributary {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(tributary().arg("-V")).stdout, named);
    let ended = run(tributary().arg("--version"));
    let told = ended.stdout.strip_prefix(&named).unwrap_or_else(|| panic!("{}", ended.stdout));
    let told: Vec<_> = told.lines().map(|line| line.split("  ").next().unwrap()).collect();
    let lines =
        ["commit", "programs for the kernel", "frames", "preloaded under", "other interfaces"];
    assert_eq!(told, lines);

    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    assert!(run(tributary().args(["token", "create"]).arg(&token)).status.success());
    let ended =
        run(tributary().args(["status", "--manager", "127.0.0.1:1", "--token-file"]).arg(&token));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("127.0.0.1:1"), "{}", ended.stderr);
}
