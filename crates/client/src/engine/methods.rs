//! The inter-host methods that are open at this rank.

use tributary_tuning::Method;
use tributary_wire::EndpointId;
use tributary_wire::frame::Abort;

use tributary_inter_host::{DirectMethod, FailoverTree, InterHost, InterHostOperation};

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

    /// Notes an operation that is about to start, where hosts that wait in the other method for it find out.
    pub(crate) fn note_call(&mut self, method: Method, operation: &InterHostOperation) {
        if let (Method::Tree, Some(direct)) = (method, &mut self.direct) {
            direct.note_call_in_tree(operation);
        }
    }

    /// Looks, while this leader waits in a method, whether hosts wait for it in the other. The method that failed, and why.
    pub(crate) fn check_other(&mut self, method: Method) -> Result<(), (Method, Abort)> {
        match (method, &mut self.direct) {
            (Method::Tree, Some(direct)) => {
                direct.check_beside_tree().map_err(|abort| (Method::Direct, abort))
            }
            // A tree that fails raises its alarm, or tells its hosts by `share_failure`.
            _ => Ok(()),
        }
    }

    /// A method has failed, with this host at fault if it is known: hosts that wait in the other fail for the same reason.
    pub(crate) fn share_failure(&mut self, failed: Method, abort: Abort, host: Option<usize>) {
        let Self { tree: Some(tree), direct: Some(direct) } = self else { return };
        let by_number = host.map(|host| Abort { at_fault: EndpointId(host as u32), ..abort });
        match (failed, by_number) {
            (Method::Direct, Some(abort)) => tree.pass_on(abort),
            (Method::Direct, None) => tree.abort(abort.reason),
            // Whatever a host waits in, its alarm tells of the tree.
            (Method::Tree, _) if tree.alarm().is_some() => {}
            (Method::Tree, Some(abort)) => direct.pass_on(abort),
            (Method::Tree, None) => direct.abort(abort.reason),
        }
    }

    /// Every method that is open.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut dyn InterHost> {
        let tree = self.tree.iter_mut().map(|tree| tree as &mut dyn InterHost);
        tree.chain(self.direct.iter_mut().map(|direct| direct as &mut dyn InterHost))
    }
}
