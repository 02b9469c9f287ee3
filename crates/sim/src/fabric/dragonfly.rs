//! Dragonfly: groups of routers, with links between all routers of a group and one between every two
//! groups.

use super::hop::{Hop, Link, Vertex};
use super::routing::Flow;

/// Kim, Dally, Scott and Abts, ISCA 2008, with minimal routes: local, global, local.
#[derive(Clone, Debug)]
pub struct Dragonfly {
    groups: u32,
    routers: u32,
    hosts_per_router: u32,
}

impl Dragonfly {
    /// `groups` groups of `routers` routers with `hosts_per_router` hosts each.
    ///
    /// # Panics
    /// If a number is 0.
    #[must_use]
    pub fn new(groups: u32, routers: u32, hosts_per_router: u32) -> Self {
        assert!(groups > 0 && routers > 0 && hosts_per_router > 0, "an empty fabric");
        Self { groups, routers, hosts_per_router }
    }

    /// Hosts of one group.
    #[must_use]
    pub fn hosts_per_group(&self) -> u32 {
        self.routers * self.hosts_per_router
    }

    pub(super) fn hosts(&self) -> u32 {
        self.groups * self.hosts_per_group()
    }

    pub(super) fn vertices(&self) -> u32 {
        self.hosts() + self.groups * self.routers
    }

    /// Two for each host, one for each ordered pair of routers of a group, one for each ordered
    /// pair of groups.
    pub(super) fn links(&self) -> u32 {
        self.first_global() + self.groups * self.groups
    }

    fn first_local(&self) -> u32 {
        2 * self.hosts()
    }

    fn first_global(&self) -> u32 {
        self.first_local() + self.groups * self.routers * self.routers
    }

    /// The router of group `from` with the cable to group `to`: cables are distributed evenly.
    fn gateway(&self, from: u32, to: u32) -> u32 {
        let port = if to > from { to - 1 } else { to };
        let ports = (self.groups - 1).div_ceil(self.routers);
        from * self.routers + port / ports
    }

    fn router(&self, vertex: Vertex) -> u32 {
        if vertex.0 < self.hosts() {
            vertex.0 / self.hosts_per_router
        } else {
            vertex.0 - self.hosts()
        }
    }

    /// The next link on the path through the group that the flow's hash names. The path is the shortest one
    /// within a group, and if that group is one of the two ends'.
    pub(super) fn next_through_third_group(&self, flow: Flow, at: Vertex) -> Hop {
        let group = |vertex| self.router(vertex) / self.routers;
        let (source, here, goal) = (group(flow.from), group(at), group(flow.to));
        let third = flow.pick(0, self.groups);
        let is_hosts_link = at.0 < self.hosts();
        if is_hosts_link || here != source || [source, goal].contains(&third) || source == goal {
            return self.next(at, flow.to);
        }
        // Towards the third group: any router of it will do.
        self.next(at, Vertex(self.hosts() + self.gateway(third, goal)))
    }

    pub(super) fn next(&self, at: Vertex, to: Vertex) -> Hop {
        let hosts = self.hosts();
        let (here, there) = (self.router(at), self.router(to));
        if at.0 < hosts {
            return Hop { link: Link(2 * at.0), to: Vertex(hosts + here) };
        }
        if here == there {
            return Hop { link: Link(2 * to.0 + 1), to };
        }
        let (from, goal) = (here / self.routers, there / self.routers);
        if from == goal {
            return self.local(here, there);
        }
        let exit = self.gateway(from, goal);
        if here != exit {
            return self.local(here, exit);
        }
        let link = Link(self.first_global() + from * self.groups + goal);
        Hop { link, to: Vertex(hosts + self.gateway(goal, from)) }
    }

    fn local(&self, from: u32, to: u32) -> Hop {
        let link = self.first_local() + from * self.routers + to % self.routers;
        Hop { link: Link(link), to: Vertex(self.hosts() + to) }
    }
}
