//! Parts of a host's name: `machine@boot#part`.
//!
//! `boot` comes from the kernel's boot id and tells apart machines of the same name. `#part` is
//! present if one machine acts as several hosts (its sockets, or emulated hosts). Names that people
//! write may lack both.

/// The machine part of `host`.
#[must_use]
pub fn machine_of(host: &str) -> &str {
    host.split_once('#').map_or(host, |(machine, _)| machine)
}

/// The booted kernel that `host` runs on; none if the name does not contain it. Hosts with the same
/// kernel are containers or namespaces of one machine.
#[must_use]
pub fn kernel_of(host: &str) -> Option<&str> {
    machine_of(host).rsplit_once('@').map(|(_, boot)| boot).filter(|boot| !boot.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_machine_are_told_by_what_follows_the_first_sign() {
        assert_eq!(machine_of("a@12ab34cd"), "a@12ab34cd");
        assert_eq!(machine_of("a@12ab34cd#3.1"), "a@12ab34cd");
        assert_eq!(machine_of("a#0#1"), "a");
    }

    #[test]
    fn hosts_of_one_kernel_say_so_in_their_names() {
        assert_eq!(kernel_of("h0@12ab34cd"), kernel_of("h1@12ab34cd"));
        assert_eq!(kernel_of("a@b@12ab34cd#3.1"), Some("12ab34cd"));
        assert_ne!(kernel_of("h0@12ab34cd"), kernel_of("h0@12ab34ce"));
        assert_eq!(kernel_of("h0@"), None);
        assert_eq!(kernel_of("h0"), None);
    }
}
