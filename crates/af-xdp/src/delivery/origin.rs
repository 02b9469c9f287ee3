//! The owner of the program that delivers, and where it sits.

use super::address::ServiceAddress;

/// Where a program that delivers sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Where packets enter the network stack (tcx, Linux 6.6). Other programs may sit there, too.
    TrafficControl,
    /// As [`Mode::Generic`](crate::Mode::Generic).
    Generic,
    /// As [`Mode::Native`](crate::Mode::Native).
    Native,
}

/// The owner of the program that delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This process's own, which it has privileges for.
    Own(Hook),
    /// That of the host's service.
    Service(ServiceAddress),
}
