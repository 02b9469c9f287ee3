//! Where the programs sit, which an operator decides.

/// Where a program sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Where packets enter the network stack (tcx, Linux 6.6). Other programs may sit there, too. That of AF_XDP sits behind the driver.
    TrafficControl,
    /// Behind the driver, by XDP, at any interface, which is left as it is. Packets are copied.
    Generic,
    /// In the driver, by XDP, if it can. Some drivers restart the interface for it, and then carry no long frames or trains of packets.
    /// Packets are not copied where the driver can do that, too.
    Native,
}
