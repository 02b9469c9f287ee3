//! Fat trees of any number of levels.

use super::hop::{Hop, Link, Vertex};
use super::routing::Flow;

/// One level of switches.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Children of a switch of this level.
    down: u32,
    /// Switches of this level above one vertex of the level below.
    up: u32,
    /// First vertex of this level.
    first: u32,
    /// First upward link from the level below to this one; the downward one follows it.
    first_link: u32,
    /// Product of `up` over this and all lower levels: switches of this level that have the same
    /// hosts below.
    width: u32,
    /// Product of `down` over this and all lower levels: hosts below one switch.
    span: u32,
}

/// An extended generalized fat tree (Ohring, Ibel, Das and Kumar, IPPS 1995): each switch of level
/// i has `down[i]` children, each vertex of level i - 1 has `up[i]` parents.
///
/// The label of a vertex of level l is `(a, b)`: the block of hosts below it, and its number among the
/// switches above that block. Its parents differ in one digit of `b`, so routes are computed: up by the
/// digits of the target (D-mod-k: Zahavi, Johnson, Kerbyson and Lang, 2010) until the target lies
/// below, then down by the digits of the target.
#[derive(Clone, Debug)]
pub struct FatTree {
    hosts: u32,
    vertices: u32,
    links: u32,
    levels: Vec<Level>,
}

/// The parts of a vertex number.
struct Label {
    /// 0 for hosts.
    level: usize,
    block: u32,
    copy: u32,
}

impl FatTree {
    /// A fat tree of `down.len()` levels.
    ///
    /// # Panics
    /// If there is no level, the two lists differ in length, a number in them is 0, a host has more
    /// than one link, or vertices can't be numbered in 32 bits.
    #[must_use]
    pub fn new(down: &[u32], up: &[u32]) -> Self {
        assert!(!down.is_empty() && down.len() == up.len(), "one pair of radices for each level");
        assert_eq!(up[0], 1, "a host has one switch");
        let product = |factors: &[u32]| {
            factors.iter().try_fold(1_u32, |all, &one| all.checked_mul(one)).expect("fits 32 bits")
        };
        let hosts = product(down);
        let (mut vertices, mut links) = (hosts, 0);
        let mut levels = Vec::with_capacity(down.len());
        let mut below = hosts;
        for index in 0..down.len() {
            assert!(down[index] > 0 && up[index] > 0, "a level has links");
            let (width, span) = (product(&up[..=index]), product(&down[..=index]));
            let (first, first_link) = (vertices, links);
            levels.push(Level { down: down[index], up: up[index], first, first_link, width, span });
            links += 2 * below * up[index];
            below = hosts / span * width;
            vertices += below;
        }
        Self { hosts, vertices, links, levels }
    }

    pub(super) fn hosts(&self) -> u32 {
        self.hosts
    }

    pub(super) fn vertices(&self) -> u32 {
        self.vertices
    }

    pub(super) fn links(&self) -> u32 {
        self.links
    }

    /// Levels of switches.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The first of the switches of `level` (1 is the lowest) above a host.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn switch_above(&self, host: Vertex, level: usize) -> Vertex {
        let Level { first, width, span, .. } = self.levels[level - 1];
        Vertex(first + host.0 / span * width)
    }

    fn label(&self, vertex: Vertex) -> Label {
        let level = self.levels.iter().take_while(|level| vertex.0 >= level.first).count();
        if level == 0 {
            return Label { level, block: vertex.0, copy: 0 };
        }
        let Level { first, width, .. } = self.levels[level - 1];
        let number = vertex.0 - first;
        Label { level, block: number / width, copy: number % width }
    }

    fn width(&self, level: usize) -> u32 {
        if level == 0 { 1 } else { self.levels[level - 1].width }
    }

    fn span(&self, level: usize) -> u32 {
        if level == 0 { 1 } else { self.levels[level - 1].span }
    }

    fn first(&self, level: usize) -> u32 {
        if level == 0 { 0 } else { self.levels[level - 1].first }
    }

    pub(super) fn next(&self, at: Vertex, to: Vertex) -> Hop {
        // The target alone decides, as in InfiniBand's forwarding tables: neighbours that send at the same
        // distance, as in the rounds of host algorithms, never share a link upward.
        self.towards(at, to, |level, width, block| block / width % level.up)
    }

    /// The same with a way up that a hash of the flow chooses at each switch.
    pub(super) fn next_of(&self, flow: Flow, at: Vertex) -> Hop {
        self.towards(at, flow.to, |level, _, _| flow.pick(at.0, level.up))
    }

    /// The next link, with a choice among the parents by their level, its width below, and the target's block.
    fn towards(&self, at: Vertex, to: Vertex, choose: impl Fn(&Level, u32, u32) -> u32) -> Hop {
        let (here, there) = (self.label(at), self.label(to));
        // The block of `there`, counted in blocks of this level.
        let goal = if here.level > there.level {
            there.block / (self.span(here.level) / self.span(there.level))
        } else {
            here.block
        };
        // Two switches above the same hosts, neither above the other, have only lower switches in common.
        let shared = self.width(here.level.min(there.level));
        let is_beside = here.copy % shared != there.copy % shared;
        if is_beside || (here.level > there.level && goal == here.block) {
            let is_above = here.level > there.level && goal == here.block;
            let block = if is_above {
                there.block / (self.span(here.level - 1) / self.span(there.level))
            } else {
                here.block * self.levels[here.level - 1].down
            };
            self.down(&here, block)
        } else {
            self.up(&here, &there, choose)
        }
    }

    fn up(&self, here: &Label, there: &Label, choose: impl Fn(&Level, u32, u32) -> u32) -> Hop {
        let level = &self.levels[here.level];
        let width = self.width(here.level);
        let digit = if there.level > here.level {
            there.copy / width % level.up
        } else {
            choose(level, width, there.block)
        };
        let below = here.block * width + here.copy;
        let to = level.first + here.block / level.down * level.width + digit * width + here.copy;
        Hop { link: Link(level.first_link + 2 * (below * level.up + digit)), to: Vertex(to) }
    }

    fn down(&self, here: &Label, block: u32) -> Hop {
        let level = &self.levels[here.level - 1];
        let width = self.width(here.level - 1);
        let (copy, digit) = (here.copy % width, here.copy / width);
        let below = block * width + copy;
        Hop {
            link: Link(level.first_link + 2 * (below * level.up + digit) + 1),
            to: Vertex(self.first(here.level - 1) + below),
        }
    }
}
