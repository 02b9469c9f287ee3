//! The inter-host methods that are open at this rank.

use tributary_tuning::Method;

use tributary_inter_host::{DirectMethod, FailoverTree, InterHost};

/// The methods that are open at this leader; none at other ranks, and on one host.
#[derive(Default)]
pub(crate) struct InterHostMethods {
    pub(crate) tree: Option<FailoverTree>,
    pub(crate) direct: Option<DirectMethod>,
}

impl InterHostMethods {
    /// The method that a stage of this rank uses.
    ///
    /// # Panics
    /// If it is not open: selection names no other.
    pub(crate) fn method(&mut self, method: Method) -> &mut dyn InterHost {
        self.open(method).expect("only methods that are open are selected")
    }

    /// A method, at a rank for which it is open.
    pub(crate) fn open(&mut self, method: Method) -> Option<&mut dyn InterHost> {
        match method {
            Method::Tree => self.tree.as_mut().map(|tree| tree as _),
            Method::Direct => self.direct.as_mut().map(|direct| direct as _),
        }
    }

    /// Every method that is open.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut dyn InterHost> {
        let tree = self.tree.iter_mut().map(|tree| tree as &mut dyn InterHost);
        tree.chain(self.direct.iter_mut().map(|direct| direct as &mut dyn InterHost))
    }
}
