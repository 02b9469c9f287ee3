//! Torus: a grid that wraps in every dimension.

use super::hop::{Hop, Link, Vertex};

/// One host at each router. Routes are dimension-ordered, in the shorter direction.
#[derive(Clone, Debug)]
pub struct Torus {
    sizes: Vec<u32>,
    hosts: u32,
}

impl Torus {
    /// A torus of these sizes.
    ///
    /// # Panics
    /// If there is no dimension or an empty one, or routers can't be numbered in 32 bits.
    #[must_use]
    pub fn new(sizes: &[u32]) -> Self {
        assert!(!sizes.is_empty() && sizes.iter().all(|&size| size > 0), "an empty fabric");
        let hosts = sizes.iter().try_fold(1_u32, |all, &one| all.checked_mul(one));
        Self { sizes: sizes.to_vec(), hosts: hosts.expect("fits 32 bits") }
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    pub(super) fn hosts(&self) -> u32 {
        self.hosts
    }

    pub(super) fn vertices(&self) -> u32 {
        2 * self.hosts
    }

    /// Two for each host, and two of each router in each dimension.
    pub(super) fn links(&self) -> u32 {
        2 * self.hosts + self.hosts * 2 * self.sizes.len() as u32
    }

    pub(super) fn next(&self, at: Vertex, to: Vertex) -> Hop {
        let hosts = self.hosts;
        if at.0 < hosts {
            return Hop { link: Link(2 * at.0), to: Vertex(hosts + at.0) };
        }
        let (here, there) = (at.0 - hosts, to.0 % hosts);
        let mut stride = 1;
        for (dimension, &size) in self.sizes.iter().enumerate() {
            let (from, goal) = (here / stride % size, there / stride % size);
            if from != goal {
                let ahead = (goal + size - from) % size;
                let is_forward = 2 * ahead <= size;
                let step = if is_forward { (from + 1) % size } else { (from + size - 1) % size };
                let router = here - from * stride + step * stride;
                let ports = 2 * self.sizes.len() as u32;
                let port = 2 * dimension as u32 + u32::from(!is_forward);
                let link = Link(2 * hosts + here * ports + port);
                return Hop { link, to: Vertex(hosts + router) };
            }
            stride *= size;
        }
        Hop { link: Link(2 * there + 1), to }
    }
}
