//! What members called, as hosts that are joined directly tell each other.

use crate::{Datatype, EndpointId, OperationNumber, Operator};

/// What a member called, as far as it can be told to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The collective's number in the C interface. Not checked: a reader that does not know it says so.
    pub collective: u8,
    /// How elements combine.
    pub operator: Operator,
    /// What an element is.
    pub datatype: Datatype,
}

/// A member's word that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The operation that it waits in.
    pub operation: OperationNumber,
    /// What it called.
    pub called: Called,
    /// A digest of all that members must call alike, up to this operation.
    pub digest: u32,
}

/// Two members that called different operations under one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The member that found it out, and the other.
    pub members: [EndpointId; 2],
    /// What each called.
    pub called: [Called; 2],
}

impl Called {
    /// The codes in one number: of the collective, the operator and the datatype.
    pub(super) fn to_codes(self) -> u32 {
        u32::from_le_bytes([self.collective, self.operator.code(), self.datatype.code(), 0])
    }
}
