//! What `tributary --version` says of a build.

use std::sync::LazyLock;

use tributary_wire::frame::Versions;

/// The commit, for packages: `mk/packages.mk` names it. A build by hand would have to be linked anew for each commit.
const COMMIT: Option<&str> = option_env!("TRIBUTARY_COMMIT");

/// Behind the name: the version, and in the lines below what a report of a fault should tell of the build.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(describe);

fn describe() -> String {
    let Versions { oldest, newest } = Versions::SPOKEN;
    let commit = COMMIT.unwrap_or("unknown (this is no package)");
    let frames = match oldest == newest {
        true => format!("version {}", newest.0),
        false => format!("versions {} to {}", oldest.0, newest.0),
    };
    let programs = match tributary_kernel_path::IS_BUILT {
        true => "aggregation, AF_XDP and rings",
        false => "none (there was no clang when this was built)",
    };
    format!(
        "{}\n\
         commit                   {commit}\n\
         programs for the kernel  {programs}\n\
         frames                   {frames}\n\
         preloaded under          Open MPI 4 and 5, MPICH 4 and 5 and what has its ABI, the ABI of MPI 5\n\
         other interfaces         libsharp_coll, Python, torch, Rust",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_screens_and_begin_with_the_version() {
        let text = describe();
        assert!(text.starts_with(env!("CARGO_PKG_VERSION")));
        assert!(text.lines().all(|line| line.len() <= 96), "{text}");
    }
}
