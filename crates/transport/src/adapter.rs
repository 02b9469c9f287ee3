//! What the kernel says of a host's network adapters. Needs no privilege.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, socket};

/// Where the kernel lists adapters.
const ADAPTERS: &str = "/sys/class/net";

/// A network adapter that is up and leads out of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its interface.
    pub name: String,
    /// The name of its driver; none for one that is virtual.
    pub driver: Option<String>,
    /// In Mb/s, if it states one.
    pub speed_mbps: Option<u64>,
    /// The longest packet that it sends, in bytes without the header of Ethernet.
    pub mtu_bytes: Option<u32>,
}

impl Adapter {
    /// How long it keeps packets to itself, if its driver says so. Asks the driver.
    #[must_use]
    pub fn moderation(&self) -> Option<Moderation> {
        moderation_of(&self.name)
    }
}

/// How long an adapter waits for more packets before it interrupts a processor for those that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// In microseconds.
    pub receive_us: u32,
    /// Whether the driver changes that time by what comes.
    pub is_adaptive: bool,
}

/// The adapters of this thread's network namespace, by name.
///
/// # Errors
/// If the kernel does not list them.
pub fn adapters() -> io::Result<Vec<Adapter>> {
    let folders = fs::read_dir(ADAPTERS)?.map(|entry| entry.map(|entry| entry.path()));
    let mut folders = folders.collect::<io::Result<Vec<PathBuf>>>()?;
    folders.sort();
    Ok(folders.iter().filter_map(|folder| read(folder)).collect())
}

/// One adapter by its interface; none if there is none of that name, it is down, or loopback.
#[must_use]
pub fn adapter(name: &str) -> Option<Adapter> {
    read(&Path::new(ADAPTERS).join(name))
}

/// The adapter that a folder describes; none if it is down, or loopback.
fn read(folder: &Path) -> Option<Adapter> {
    let text = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let number = |file: &str| text(file)?.trim().parse::<i64>().ok();
    // `IFF_UP` and `IFF_LOOPBACK` (linux/if.h).
    let flags = text("flags")?;
    let flags = u32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    let is_running = text("operstate").is_none_or(|state| state.trim() != "down");
    if flags & 0x1 == 0 || flags & 0x8 != 0 || !is_running {
        return None;
    }
    let name = folder.file_name()?.to_str()?.to_owned();
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
    Some(Adapter {
        driver,
        // -1 where the adapter has no speed.
        speed_mbps: number("speed")
            .and_then(|speed| u64::try_from(speed).ok())
            .filter(|it| *it > 0),
        mtu_bytes: number("mtu").and_then(|mtu| u32::try_from(mtu).ok()),
        name,
    })
}

/// Asks the driver, by the interface of `ethtool`.
fn moderation_of(name: &str) -> Option<Moderation> {
    let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let values = coalescing(&asked, name)?;
    Some(Moderation { receive_us: values[RECEIVE_US], is_adaptive: values[IS_ADAPTIVE] != 0 })
}

/// `struct ethtool_coalesce` (linux/ethtool.h) is so many numbers, the first of which is the command.
const COALESCING: usize = 23;
const ETHTOOL_GCOALESCE: u32 = 0xe;
const RECEIVE_US: usize = 1;
const IS_ADAPTIVE: usize = 10;

fn coalescing(socket: &OwnedFd, name: &str) -> Option<[u32; COALESCING]> {
    let mut values = [0; COALESCING];
    values[0] = ETHTOOL_GCOALESCE;
    // SAFETY: all zeros are a valid request: a name and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays the end of the name.
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return None;
    }
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *target = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut values).cast();
    // SAFETY: the kernel reads the request, and writes the structure that it points to, which has room for it; both live
    // until the call has returned.
    let outcome =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (outcome == 0).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a temporary folder");
        }
    }

    #[test]
    fn an_adapter_is_read_as_the_kernel_describes_it() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path().join("eth7");
        fs::create_dir_all(folder.join("device")).expect("a temporary folder");
        std::os::unix::fs::symlink("../../bus/pci/drivers/ixgbe", folder.join("device/driver"))
            .expect("a temporary folder");
        describe(&folder, &[("flags", "0x1003\n"), ("speed", "10000\n"), ("mtu", "9000\n")]);
        let adapter = Adapter {
            name: "eth7".to_owned(),
            driver: Some("ixgbe".to_owned()),
            speed_mbps: Some(10_000),
            mtu_bytes: Some(9000),
        };
        assert_eq!(read(&folder), Some(adapter));
        describe(&folder, &[("speed", "-1\n")]);
        assert_eq!(read(&folder).and_then(|it| it.speed_mbps), None);
        for hidden in [("flags", "0x1002\n"), ("flags", "0x9\n"), ("operstate", "down\n")] {
            describe(&folder, &[("flags", "0x1003\n"), ("operstate", "up\n")]);
            assert!(read(&folder).is_some());
            describe(&folder, &[hidden]);
            assert_eq!(read(&folder), None, "{hidden:?}");
        }
    }

    #[test]
    fn what_is_no_adapter_has_no_moderation() {
        assert_eq!(moderation_of("lo"), None);
        assert_eq!(moderation_of("no-such"), None);
        assert_eq!(moderation_of("a name that no interface can have"), None);
        let found = adapters().expect("the kernel lists adapters");
        assert!(found.iter().all(|adapter| adapter.name != "lo"), "{found:?}");
    }
}
