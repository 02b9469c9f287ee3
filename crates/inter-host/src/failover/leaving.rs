//! A place in a tree that this host has left, as long as other hosts may need it.
//!
//! A host that completes the last operation of a communicator may be the only one that has a result which another lacks when the
//! tree is lost. So it stays in the tree until its aggregator says that all members have left; the thread that watches links
//! answers for it ([`crate::departures`]). If the tree is lost before, it takes part in the settlement, as a member that has
//! completed everything and starts nothing. After a settlement all have completed its last operation.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use tributary_protocol::failover::is_tree_lost;

use super::fallback::Fallback;
use super::settling::Settling;
use crate::departures::Leaving;
use crate::operation::InterHost as _;
use crate::tree::TreeMember;

/// How long a process that ends waits until all members have left. A host that still lacks something then, and whose aggregator
/// dies later than that, names this one as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a host has left of a tree that outlives its aggregators.
pub(super) struct LeftTree {
    course: Course,
    fallback: Fallback,
}

enum Course {
    InTree(Box<TreeMember>),
    Settling(Box<Settling>),
    /// Nobody needs this host.
    Over,
}

impl LeftTree {
    /// A place in a tree in which this host starts no further operation.
    pub(super) fn in_tree(mut member: Box<TreeMember>, fallback: Fallback) -> Self {
        member.begin_to_leave();
        Self { course: Course::InTree(member), fallback }
    }

    /// The same while the loss of the tree is settled.
    pub(super) fn settling(settling: Box<Settling>, fallback: Fallback) -> Self {
        Self { course: Course::Settling(settling), fallback }
    }

    /// One round. What comes next.
    fn advance(&mut self, course: Course) -> Course {
        match course {
            Course::InTree(mut member) => {
                // What direct links have taken before.
                let _ = self.fallback.links.flush();
                match self.fallback.is_called() {
                    Ok(true) => return self.begin_to_settle(*member),
                    Ok(false) => {}
                    // The hosts know.
                    Err(_) => return Course::Over,
                }
                match member.have_all_left() {
                    Ok(true) => Course::Over,
                    Ok(false) => Course::InTree(member),
                    Err(abort) if is_tree_lost(abort.reason) => self.begin_to_settle(*member),
                    Err(_) => Course::Over,
                }
            }
            Course::Settling(mut settling) => match settling.advance(&mut self.fallback.links) {
                Ok(None) => Course::Settling(settling),
                Ok(Some(_)) => {
                    self.fallback.links.leave();
                    Course::Over
                }
                Err(_) => Course::Over,
            },
            Course::Over => Course::Over,
        }
    }

    fn begin_to_settle(&mut self, member: TreeMember) -> Course {
        self.fallback.begin_to_settle(member).map_or(Course::Over, Course::Settling)
    }
}

impl Leaving for LeftTree {
    fn may_end(&mut self) -> bool {
        let course = std::mem::replace(&mut self.course, Course::Over);
        self.course = self.advance(course);
        matches!(self.course, Course::Over)
    }

    fn descriptors(&self) -> Box<dyn Iterator<Item = BorrowedFd<'_>> + '_> {
        let link = match &self.course {
            Course::InTree(member) => Some(member.link()),
            Course::Settling(_) | Course::Over => None,
        };
        let links = &self.fallback.links;
        Box::new(link.into_iter().chain(links.callers()).chain(links.descriptors()))
    }

    fn has_more_to_do(&self) -> bool {
        match &self.course {
            Course::InTree(member) => member.has_unsaid() || self.fallback.links.has_unsaid(),
            Course::Settling(_) => true,
            Course::Over => false,
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}
