//! `tributary listen`: the results of a job's reductions, read from outside the job.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tributary_client::external_receiver::{Delivery, Ended, ExternalReceiver};
use tributary_wire::control::ExternalReceiverGrant;

use crate::flags::ListenFlags;
use crate::usage::UsageError;

/// How long the aggregation node may take to answer.
const JOIN_WITHIN: Duration = Duration::from_secs(5);

/// How long one wait for results lasts; the next one follows it.
const WAIT: Duration = Duration::from_secs(1);

/// One segment of a result, as it is printed.
#[derive(Serialize)]
struct Line<'a> {
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
    let path = flags.grant.display();
    let text = fs::read(&flags.grant).with_context(|| format!("the grant {path}"))?;
    let grant: ExternalReceiverGrant = serde_json::from_slice(&text)
        .map_err(|error| UsageError::new("GRANT", path.to_string(), error.to_string()))?;
    let mut receiver = ExternalReceiver::join(&grant, JOIN_WITHIN)?;
    let mut out = io::stdout().lock();
    let mut left = flags.count;
    while left != Some(0) {
        match receiver.receive(WAIT) {
            Ok(None) => {}
            Ok(Some(delivery)) => {
                writeln!(out, "{}", serde_json::to_string(&line(&delivery))?)?;
                left = left.map(|left| left - 1);
            }
            Err(Ended::InOrder) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(delivery: &Delivery<'_>) -> Line<'static> {
    let mut data = String::with_capacity(2 * delivery.bytes.len());
    for byte in delivery.bytes {
        // Writing into a string can't fail.
        let _ = write!(data, "{byte:02x}");
    }
    Line {
        operation: delivery.operation,
        first_element: delivery.first_element,
        operator: delivery.operator.name(),
        datatype: delivery.datatype.name(),
        bytes: delivery.bytes.len(),
        data,
    }
}
