//! An aggregator driver's port numbers.

use tributary_protocol::node::PortId;

/// What is at each port of an aggregator.
#[derive(Clone, Debug)]
pub struct Ports<T>(Vec<Option<T>>);

impl<T> Default for Ports<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Ports<T> {
    /// The lowest free port.
    #[must_use]
    pub fn free(&self) -> PortId {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        PortId(free as u32)
    }

    /// Puts something at a port.
    ///
    /// # Panics
    /// If the port is taken.
    pub fn plug(&mut self, port: PortId, what: T) {
        let index = port.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        assert!(self.0[index].replace(what).is_none(), "{port:?} is taken");
    }

    /// Frees a port.
    pub fn unplug(&mut self, port: PortId) {
        self.0[port.0 as usize] = None;
    }

    /// What is at a port.
    #[must_use]
    pub fn at(&self, port: PortId) -> Option<T> {
        self.0.get(port.0 as usize).copied().flatten()
    }

    /// Everything that is at a port.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().flatten().copied()
    }

    /// Frees all ports.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
