//! `tributary manager`, `tributary node` and `tributary token`.

use std::process::ExitCode;

use crate::flags::{ManagerFlags, NodeFlags, TokenFlags};

pub(crate) fn manager(_flags: ManagerFlags) -> anyhow::Result<ExitCode> {
    unimplemented!()
}
pub(crate) fn node(_flags: NodeFlags) -> anyhow::Result<ExitCode> {
    unimplemented!()
}
pub(crate) fn token(_flags: TokenFlags) -> anyhow::Result<ExitCode> {
    unimplemented!()
}
