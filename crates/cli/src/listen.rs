//! `tributary listen`: the results of a job's reductions, read from outside the job.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tributary_client::external_receiver::{Delivery, Ended, ExternalReceiver};
use tributary_client::report::output;
use tributary_wire::control::ExternalReceiverGrant;

use crate::flags::ListenFlags;
use crate::usage::UsageError;

/// How long the aggregation node may take to answer.
const JOIN_WITHIN: Duration = Duration::from_secs(5);

/// How long one wait for results lasts; the next one follows it.
const WAIT: Duration = Duration::from_secs(1);

/// Longest grant that is read, in bytes.
const GRANT_BYTES_MAX: u64 = 64 << 10;

/// How often the file is read while another grant is awaited.
const NEXT_GRANT_EVERY: Duration = Duration::from_millis(50);

/// One segment of a result, as it is printed.
#[derive(Serialize)]
struct Line<'a> {
    group: u32,
    epoch: u32,
    operation: u32,
    first_element: u64,
    operator: &'a str,
    datatype: &'a str,
    bytes: usize,
    /// The elements, little-endian, in hexadecimal.
    data: String,
}

/// Prints results until there are `--count`, or the job ends.
pub(crate) fn listen(flags: &ListenFlags) -> anyhow::Result<ExitCode> {
    let mut grant = read_grant(&flags.grant)?;
    let mut receiver = ExternalReceiver::join(&grant, JOIN_WITHIN)?;
    let mut out = io::stdout().lock();
    let mut left = flags.count;
    while left != Some(0) {
        match receiver.receive(WAIT) {
            Ok(None) => {}
            Ok(Some(delivery)) => {
                writeln!(out, "{}", serde_json::to_string(&line(&grant, &delivery))?)?;
                left = left.map(|left| left - 1);
            }
            Err(Ended::InOrder) => break,
            Err(ended) if ended.is_tree_lost() && flags.next_tree_within > 0 => {
                writeln!(
                    io::stderr().lock(),
                    "tributary: {ended}; waiting for the job's next tree, results until then are missed"
                )?;
                let within = Duration::from_secs(flags.next_tree_within);
                (grant, receiver) =
                    follow(&flags.grant, &grant, within).ok_or(ended).with_context(|| {
                        format!("the job wrote no other grant within {} s", within.as_secs())
                    })?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read_grant(path: &Path) -> anyhow::Result<ExternalReceiverGrant> {
    let shown = path.display();
    let text = output::read(path, GRANT_BYTES_MAX).with_context(|| format!("the grant {shown}"))?;
    let grant = serde_json::from_slice(&text)
        .map_err(|error| UsageError::new("GRANT", shown.to_string(), error.to_string()))?;
    Ok(grant)
}

/// Takes the place that a grant after `lost` gives; none if there is no such place in time.
fn follow(
    path: &Path,
    lost: &ExternalReceiverGrant,
    within: Duration,
) -> Option<(ExternalReceiverGrant, ExternalReceiver)> {
    let until = Instant::now() + within;
    let mut tried = lost.clone();
    loop {
        // The job replaces the file at once, so that it can be read at any time.
        match read_grant(path) {
            Ok(grant) if grant != tried => {
                // A tree that the job could not enter after all is followed by another.
                if let Ok(receiver) = ExternalReceiver::join(&grant, JOIN_WITHIN) {
                    return Some((grant, receiver));
                }
                tried = grant;
            }
            _ if Instant::now() >= until => return None,
            _ => thread::sleep(NEXT_GRANT_EVERY),
        }
    }
}

fn line(grant: &ExternalReceiverGrant, delivery: &Delivery<'_>) -> Line<'static> {
    let mut data = String::with_capacity(2 * delivery.bytes.len());
    for byte in delivery.bytes {
        // Writing into a string can't fail.
        let _ = write!(data, "{byte:02x}");
    }
    Line {
        group: grant.group.0,
        epoch: grant.epoch.0,
        operation: delivery.operation,
        first_element: delivery.first_element,
        operator: delivery.operator.name(),
        datatype: delivery.datatype.name(),
        bytes: delivery.bytes.len(),
        data,
    }
}
