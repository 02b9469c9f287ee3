//! What every direct link is like.

use tributary_transport::TcpOptions;

/// Longest payload of one frame. Short enough for the second-level cache, long enough that system
/// calls don't count.
pub(super) const FRAME_BYTES_MAX: u32 = 64 << 10;

pub(super) fn options() -> TcpOptions {
    TcpOptions::new(FRAME_BYTES_MAX).expect("a frame may be that long")
}
