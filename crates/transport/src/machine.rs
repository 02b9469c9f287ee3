//! Which machine this is.

use std::sync::OnceLock;

/// A name that two processes share exactly when they run on the same booted machine: the host name,
/// and the first digits of the kernel's boot id, because host names repeat (containers, clones).
#[must_use]
pub fn name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        format!("{host}@{digits}")
    })
    .clone()
}
