//! What the measuring program says, a line at a time.

use serde::Deserialize;

/// What its lines begin with, behind what a launcher may put before them.
const MARK: &str = "@tributary-bench ";

/// A line of the measuring program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// It has started.
    Start(Start),
    /// Times of some blocks of a case, of the slowest rank each.
    Samples { case: usize, us: Vec<f64> },
    /// A case is over.
    Done(Done),
    /// A host of the job.
    Host(Host),
}

/// The job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Start {
    pub(super) ranks: u64,
    pub(super) mpi_standard: String,
    pub(super) library: String,
}

/// The end of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Done {
    pub(super) case: usize,
    /// The size that was timed: whole elements.
    pub(super) bytes: u64,
    /// Calls a block.
    pub(super) calls: u64,
    /// Elements of results that were wrong, over all ranks.
    pub(super) wrong: u64,
    pub(super) checked: u64,
}

/// A host. Its name is for taking it out of texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) ranks: u64,
    pub(super) cores: u64,
    pub(super) kernel: String,
    pub(super) rdma_ports: u64,
    pub(super) adapters: Vec<Adapter>,
}

/// A network adapter of a host, and what it carried while cases were timed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Adapter {
    pub(super) driver: String,
    /// 0: unknown.
    pub(super) speed_mbps: u64,
    pub(super) mtu_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// Reads a line of a launcher's output; `None` for one that is not of the measuring program.
pub(super) fn read(text: &str) -> Option<serde_json::Result<Line>> {
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
