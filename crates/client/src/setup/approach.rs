//! How leaders reach their aggregators.

use tributary_inter_host::Approach;
use tributary_settings::{ChannelChoice, Settings};

/// As it is set. An address of a service that is none was refused with the other settings.
pub(super) fn approach_of(settings: &Settings) -> Approach {
    let is_bypassed = settings.channel == ChannelChoice::Xdp;
    let bypass = settings.ring_service.parse().ok().filter(|_| is_bypassed);
    Approach { transport: settings.transport, channel: settings.channel, bypass }
}
