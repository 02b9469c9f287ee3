//! Which kind of network a host is on, as the kernel describes the adapter.
//!
//! Nothing is timed, so that equal runs come to the same.

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tributary_algorithms::network::Network;
use tributary_transport::adapter::{Adapter, adapter};

/// What is assumed where the kernel does not say how fast an adapter is.
const UNKNOWN: Network = Network::Ethernet25;

/// Drivers of the virtual adapters of clouds, which state no speed or one that means nothing.
const CLOUD_DRIVERS: [&str; 6] = ["ena", "gve", "hv_netvsc", "mana", "virtio_net", "vmxnet3"];

/// Up to so many Mb/s an adapter counts as one of 10 Gb/s, and as one of 25.
const ETHERNET_10_MAX: u64 = 10_000;
const ETHERNET_25_MAX: u64 = 50_000;

/// The kind of network of the adapter that has this address, if it is known.
pub(super) fn recognise(address: Option<IpAddr>) -> Network {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let interface = address.and_then(|address| match address {
        IpAddr::V4(address) => interface_of_v4(&read("/proc/net/route"), address),
        IpAddr::V6(address) => interface_of_v6(&read("/proc/net/if_inet6"), address),
    });
    interface.and_then(|name| adapter(&name)).map_or(UNKNOWN, |adapter| network_of(&adapter))
}

/// The cores of this machine, whichever of them this process may use.
pub(super) fn cores() -> u32 {
    let online = read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count_in_ranges(&online).unwrap_or(1)
}

/// How many numbers a text such as `0-3,8` names.
fn count_in_ranges(text: &str) -> Option<u32> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last]: [u32; 2] = [first.parse().ok()?, last.parse().ok()?];
        last.checked_sub(first)?.checked_add(1)
    };
    text.trim().split(',').try_fold(0, |sum: u32, range| sum.checked_add(count(range)?))
}

/// The interface of the narrowest route without a gateway that has this address: columns are interface, destination,
/// gateway, flags, three counters, and mask, numbers as the kernel has them in memory.
fn interface_of_v4(routes: &str, address: Ipv4Addr) -> Option<String> {
    let own = u32::from_ne_bytes(address.octets());
    let connected = routes.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(columns.get(at)?, 16).ok();
        let (destination, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        (gateway == 0 && own & mask == destination).then(|| (mask.count_ones(), columns[0]))
    });
    connected.max_by_key(|(bits, _)| *bits).map(|(_, name)| name.to_owned())
}

/// The interface that has this address: columns are the address, four numbers, and the interface.
fn interface_of_v6(addresses: &str, address: Ipv6Addr) -> Option<String> {
    let own = format!("{:032x}", u128::from(address));
    let line = addresses.lines().find(|line| line.starts_with(&own))?;
    line.split_whitespace().last().map(str::to_owned)
}

/// The kind of network that an adapter is taken to be on.
#[must_use]
pub fn network_of(adapter: &Adapter) -> Network {
    if adapter.driver.as_deref().is_some_and(|driver| CLOUD_DRIVERS.contains(&driver)) {
        return Network::Cloud;
    }
    match adapter.speed_mbps {
        None => UNKNOWN,
        Some(..=ETHERNET_10_MAX) => Network::Ethernet10,
        Some(..=ETHERNET_25_MAX) => Network::Ethernet25,
        Some(_) => Network::Ethernet100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
ib0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_narrowest_connected_route_names_the_interface() {
        let interface = |address: [u8; 4]| interface_of_v4(ROUTES, address.into());
        assert_eq!(interface([10, 0, 2, 7]).as_deref(), Some("ib0"));
        assert_eq!(interface([10, 0, 3, 7]).as_deref(), Some("eth0"));
        assert_eq!(interface([192, 168, 0, 1]), None);
        assert_eq!(interface_of_v4("", [10, 0, 0, 1].into()), None);
        assert_eq!(interface_of_v4("Iface\nbroken line\n", [10, 0, 0, 1].into()), None);
    }

    #[test]
    fn cores_are_counted() {
        let counts = ["0-15\n", "0", "0-3,8,10-11\n", "", "3-1", "all"].map(count_in_ranges);
        assert_eq!(counts, [Some(16), Some(1), Some(7), None, None, None]);
        assert!(cores() >= 1);
    }

    #[test]
    fn an_address_of_ipv6_names_its_interface() {
        let addresses = "fe80000000000000021122fffe334455 02 40 20 80     eth1\n";
        let address: Ipv6Addr = "fe80::211:22ff:fe33:4455".parse().unwrap();
        assert_eq!(interface_of_v6(addresses, address).as_deref(), Some("eth1"));
        assert_eq!(interface_of_v6(addresses, Ipv6Addr::LOCALHOST), None);
    }

    #[test]
    fn speed_and_driver_tell_the_kind() {
        let kind = |driver: Option<&str>, speed_mbps| {
            network_of(&Adapter {
                name: "eth0".to_owned(),
                driver: driver.map(str::to_owned),
                speed_mbps,
                mtu_bytes: None,
            })
        };
        for (speed, expected) in [
            (Some(1000), Network::Ethernet10),
            (Some(10_000), Network::Ethernet10),
            (Some(25_000), Network::Ethernet25),
            (Some(200_000), Network::Ethernet100),
            (None, UNKNOWN),
        ] {
            assert_eq!(kind(Some("ixgbe"), speed), expected, "{speed:?}");
        }
        assert_eq!(kind(Some("ena"), Some(25_000)), Network::Cloud);
        assert_eq!(kind(None, None), UNKNOWN);
    }
}
