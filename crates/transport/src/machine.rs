//! The name of this machine.

use std::sync::OnceLock;

/// A name that two processes share exactly when they run on the same booted machine. It has the
/// host name and the first digits of the kernel's boot id, because host names repeat (containers,
/// clones).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_kernel_wherever_the_system_does() {
        let has_boot_id = std::path::Path::new("/proc/sys/kernel/random/boot_id").exists();
        assert_eq!(tributary_wire::host::kernel_of(&name()).is_some(), has_boot_id);
    }
}
