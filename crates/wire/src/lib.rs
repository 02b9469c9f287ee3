//! What travels between endpoints, aggregation nodes and the manager.
//!
//! Owns frame layouts, ids, the datatype and operator tables and checked decoding. Knows nothing
//! of groups, links or time. Start at [`frame`]; byte layouts are tabulated in `docs/wire.md`.
//!
//! Every [`frame::Header`] is valid by itself: every code in it is known, and its payload length
//! agrees with its datatype and element count. The protocol crate checks whether it fits a *group*.
//!
//! ```
//! use tributary_wire::frame::{Edge, Header, Message, Versions};
//! use tributary_wire::{Capability, ChildIndex, Epoch, GroupId};
//!
//! let edge = Edge {
//!     group: GroupId(7),
//!     epoch: Epoch(1),
//!     child: ChildIndex(3),
//!     capability: Capability::from_bytes([9; 16]),
//!     version: Versions::SPOKEN.newest,
//! };
//! let header = Header { edge, message: Message::Join };
//! let bytes = header.encode();
//! assert_eq!(Header::decode(&bytes), Ok(header));
//! assert!(Header::decode(&bytes[1..]).is_err());
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "control"))]
extern crate alloc;

#[cfg(feature = "control")]
pub mod control;
pub mod frame;
pub mod host;

mod capability;
mod datatype;
mod frame_key;
#[cfg(feature = "control")]
mod hex;
mod ids;
mod operator;
mod terms;
#[cfg(any(test, feature = "control"))]
pub mod text;

pub use capability::Capability;
pub use datatype::{Datatype, UnknownDatatype};
pub use frame_key::FrameKey;
pub use ids::{
    ChildIndex, EndpointId, Epoch, GroupId, JobId, NodeId, OperationNumber, SegmentIndex, Sequence,
    TreeId,
};
pub use operator::{Operator, UnknownOperator};
pub use terms::StreamTerms;
