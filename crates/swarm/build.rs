//! Tells the swarm which commit it is, so that a failing seed can be run again as it was.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::path::Path;
use std::process::Command;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let is_changed = git(&["status", "--porcelain", "-uno"]).is_some_and(|text| !text.is_empty());
    println!("cargo::rustc-env=TRIBUTARY_COMMIT={commit}{}", if is_changed { "+" } else { "" });
    // A commit appends to this log, wherever the checkout keeps it.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rerun-if-changed=../protocol/src");
    println!("cargo::rerun-if-changed=../protocol-testing/src");
    println!("cargo::rerun-if-changed=src");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
