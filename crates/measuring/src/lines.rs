//! What the measuring program says, a line at a time.

use serde::Deserialize;

/// What its lines begin with, behind what a launcher may put before them.
const MARK: &str = "@tributary-bench ";

/// A line of the measuring program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It has started.
    Start(Start),
    /// Times of some blocks of a case, of the slowest rank each.
    Samples {
        /// The case's number.
        case: usize,
        /// Microseconds for one call.
        us: Vec<f64>,
    },
    /// A case is over.
    Done(Done),
    /// A host of the job.
    Host(Host),
}

/// The job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Start {
    /// Its ranks.
    pub ranks: u64,
    /// The version of the standard that the MPI has.
    pub mpi_standard: String,
    /// What the MPI says about itself.
    pub library: String,
}

/// The end of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Done {
    /// The case's number.
    pub case: usize,
    /// The size that was timed: whole elements.
    pub bytes: u64,
    /// Calls a block.
    pub calls: u64,
    /// Elements of results that were wrong, over all ranks.
    pub wrong: u64,
    /// Elements of results that were compared, over all ranks.
    pub checked: u64,
}

/// A host. Its name is for taking it out of texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The ranks on it.
    pub ranks: u64,
    /// Its cores.
    pub cores: u64,
    /// Its kernel's version.
    pub kernel: String,
    /// What tells its running kernel from another's; empty: unknown. Not to be passed on.
    #[serde(default)]
    pub boot: String,
    /// Its active ports of RDMA.
    pub rdma_ports: u64,
    /// Its adapters.
    pub adapters: Vec<Adapter>,
}

/// A network adapter of a host, and what it carried while cases were timed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Adapter {
    /// Its driver's name; empty: unknown.
    pub driver: String,
    /// Megabits a second; 0: unknown.
    pub speed_mbps: u64,
    /// The longest packet.
    pub mtu_bytes: u64,
    /// What it sent.
    pub sent_bytes: u64,
    /// What it received.
    pub received_bytes: u64,
}

/// Reads a line of a launcher's output; `None` for one that is not of the measuring program.
#[must_use]
pub fn read(text: &str) -> Option<serde_json::Result<Line>> {
    let (_, json) = text.split_once(MARK)?;
    Some(serde_json::from_str(json.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_behind_a_launchers_label() {
        let line =
            read("[1,0]<stdout>: @tributary-bench {\"samples\":{\"case\":2,\"us\":[1.5,2]}}\r");
        assert_eq!(line.unwrap().unwrap(), Line::Samples { case: 2, us: vec![1.5, 2.0] });
        assert!(read("a warning of the launcher").is_none());
        assert!(read("@tributary-bench {\"samp").unwrap().is_err(), "a torn line");
    }
}
