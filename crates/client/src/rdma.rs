//! Whether this host has a network that an MPI uses past the kernel's network stack.

use std::path::Path;

/// Classes of adapters under `/sys/class`: verbs, which includes Omni-Path, RoCE and EFA; and Slingshot.
const CLASSES: [&str; 2] = ["infiniband", "cxi"];

/// Whether a port of such an adapter is active.
pub(crate) fn has_active_port() -> bool {
    has_active_port_in(Path::new("/sys/class"))
}

fn has_active_port_in(classes: &Path) -> bool {
    let adapters = CLASSES.iter().filter_map(|class| classes.join(class).read_dir().ok()).flatten();
    adapters.flatten().any(|adapter| {
        let Ok(ports) = adapter.path().join("ports").read_dir() else {
            // Adapters of Slingshot have no ports there, and are used when they are there.
            return adapter.path().parent().is_some_and(|class| class.ends_with("cxi"));
        };
        // Such as `4: ACTIVE`.
        let state = |port: std::fs::DirEntry| std::fs::read_to_string(port.path().join("state"));
        ports.flatten().any(|port| state(port).is_ok_and(|state| state.contains("ACTIVE")))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_adapter_counts_if_a_port_is_active() {
        let folder = tempfile::tempdir().unwrap();
        let classes = folder.path();
        assert!(!has_active_port_in(classes), "no such class");
        let port = classes.join("infiniband/mlx5_0/ports/1");
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("state"), "1: DOWN\n").unwrap();
        assert!(!has_active_port_in(classes));
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        assert!(has_active_port_in(classes));
    }

    #[test]
    fn an_adapter_of_slingshot_counts() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("cxi/cxi0")).unwrap();
        assert!(has_active_port_in(folder.path()));
    }
}
