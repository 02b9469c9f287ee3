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

/// What of such a name tells the booted machine: hosts that have it in common are containers, or
/// namespaces, of one kernel. None if the name does not tell. What follows a `#` is not the machine's.
#[must_use]
pub fn kernel_of(name: &str) -> Option<&str> {
    let (machine, _) = name.split_once('#').unwrap_or((name, ""));
    machine.rsplit_once('@').map(|(_, boot)| boot).filter(|boot| !boot.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_kernel_say_so_in_their_names() {
        assert_eq!(kernel_of("h0@12ab34cd"), kernel_of("h1@12ab34cd"));
        assert_eq!(kernel_of("a@b@12ab34cd#3.1"), Some("12ab34cd"));
        assert_ne!(kernel_of("h0@12ab34cd"), kernel_of("h0@12ab34ce"));
        assert_eq!(kernel_of("h0@"), None);
        assert_eq!(kernel_of("h0"), None);
        assert_eq!(
            kernel_of(&name()).is_some(),
            std::path::Path::new("/proc/sys/kernel/random/boot_id").exists()
        );
    }
}
