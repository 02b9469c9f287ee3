//! What the manager is asked for on behalf of a communicator's leaders.

use tributary_wire::Capability;
use tributary_wire::control::GroupRequest;
use tributary_wire::frame::Versions;

use crate::context::Context;
use crate::placement::Placement;

/// What a group of the leaders is asked for with, but for the secret, which the job's place knows.
pub(super) fn group_request(context: &Context, placement: &Placement, label: &str) -> GroupRequest {
    let settings = &context.settings;
    GroupRequest {
        secret: Capability::default(),
        label: label.to_owned(),
        hosts: placement.hosts.clone(),
        frame_versions: Versions::SPOKEN,
        osos: settings.osos,
        payload_max_bytes: settings.payload_max_bytes,
        stream: settings.stream_min_bytes.map(|_| settings.stream),
        external_receiver: false,
    }
}
