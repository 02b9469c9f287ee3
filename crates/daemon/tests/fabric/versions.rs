//! Aggregators and jobs of builds whose frames are one version apart, and further apart.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread::JoinHandle;

use tributary_daemon::node::NodeLimits;
use tributary_daemon::shutdown::Shutdown;
use tributary_transport::token::Token;
use tributary_wire::control::{GroupGrant, Refusal, RefusalCode};
use tributary_wire::frame::{Version, Versions};

use crate::common::*;
use crate::recovery::{RunningManager, nodes, start_node_with};

/// What the builds to come speak: with this one, with the one after it, and with none that is here.
fn later(by: u8) -> Versions {
    let newest = Versions::SPOKEN.newest.0 + by;
    Versions { oldest: Version(newest - 1), newest: Version(newest) }
}

struct Site {
    folder: tempfile::TempDir,
    token: Token,
    manager: RunningManager,
    node: Option<(Shutdown, JoinHandle<()>)>,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::create(&folder.path().join("token")).unwrap();
        let manager = RunningManager::start((Ipv4Addr::LOCALHOST, 0).into(), &token);
        Self { folder, token, manager, node: None }
    }

    fn address(&self) -> SocketAddr {
        self.manager.address
    }

    fn job(&self) -> Job {
        Job::admit_at(self.address(), self.token.reveal())
    }

    /// Puts an aggregator of another build in the place of the one that is there.
    fn put_node(&mut self, frame_versions: Versions) {
        self.end_node();
        let limits = NodeLimits { frame_versions, ..NodeLimits::default() };
        let folder: &Path = self.folder.path();
        self.node = Some(start_node_with(limits, "node", self.address(), &self.token, folder));
        eventually("the node is there", || nodes(self.address(), &self.token) == 1);
    }

    fn end_node(&mut self) {
        let Some((shutdown, thread)) = self.node.take() else { return };
        shutdown.request();
        thread.join().unwrap();
        eventually("the node is gone", || nodes(self.address(), &self.token) == 0);
    }
}

fn grant(job: &Job, versions: Versions) -> GroupGrant {
    let answer = job.request_speaking(versions, &["a".to_owned(), "b".to_owned()]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn refusal(job: &Job, versions: Versions) -> Refusal {
    let answer = job.request_speaking(versions, &["a".to_owned(), "b".to_owned()]);
    assert_ne!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn builds_one_version_apart_use_the_older_one_until_all_are_upgraded() {
    guarded(|| {
        let (today, next) = (Versions::SPOKEN, later(1));
        let mut site = Site::start();
        site.put_node(today);
        let (old_job, new_job) = (site.job(), site.job());
        for (job, speaks, way) in [(&old_job, today, Way::Shm), (&new_job, next, Way::Tcp)] {
            let granted = grant(job, speaks);
            assert_eq!(granted.frame_version, today.newest, "the node is of the older build");
            sum_once(&mut members(&granted, way), 1.0);
        }
        site.put_node(next);
        let old = grant(&old_job, today);
        let new = grant(&new_job, next);
        assert_eq!(old.frame_version, today.newest, "the job is of the older build");
        assert_eq!(new.frame_version, next.newest);
        let (mut old, mut new) = (members(&old, Way::Tcp), members(&new, Way::Shm));
        for round in 0..3 {
            sum_once(&mut old, f64::from(round));
            sum_once(&mut new, f64::from(round));
        }
        site.end_node();
    });
}

#[test]
fn builds_further_apart_are_refused_and_told_who_speaks_what() {
    guarded(|| {
        let mut site = Site::start();
        site.put_node(later(2));
        let refused = refusal(&site.job(), Versions::SPOKEN);
        assert_eq!(refused.code, RefusalCode::NoTree);
        let (theirs, ours) = (later(2), Versions::SPOKEN);
        let message = format!(
            "aggregation node `node` speaks version {theirs} of frames, the job and the other nodes {ours}: \
             upgrade what is older"
        );
        assert_eq!(refused.message, message);
        site.end_node();
    });
}
