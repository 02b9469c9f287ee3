//! What members of a replicated group say to each other.

use super::called::Called;
use crate::{Datatype, OperationNumber, Operator, UnknownDatatype, UnknownOperator};

/// Longest contribution that the next one repeats.
pub const REPEATED_BYTES_MAX: usize = 64;

/// What tells of a repeated contribution, in front of its bytes.
pub const REPEATED_HEAD_BYTES: usize = 8;

/// What tells of the contribution before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedHead {
    /// What its sender called.
    pub called: Called,
    /// A digest of all that members must call alike, up to that operation.
    pub digest: u32,
}

/// A member's question for a contribution, or the answer that it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The operation.
    pub operation: OperationNumber,
    /// The level, from the hosts on; above its eight bits what tells groups apart in which the same hosts meet.
    pub level: u32,
    /// The dead member whose contribution it is; none for the one of the member that is asked.
    pub of: Option<u8>,
}

/// Why bytes are no repeated contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepeatedError {
    /// More or fewer bytes than one can have.
    #[error("a contribution repeats the one before it in {bytes} bytes")]
    Length {
        /// How many.
        bytes: u16,
    },
    /// An operator that is not defined.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
    /// A datatype that is not defined.
    #[error(transparent)]
    Datatype(#[from] UnknownDatatype),
    /// A byte that must be zero is not zero.
    #[error("a repeated contribution sets a reserved byte")]
    Reserved,
}

/// Whether a repeated contribution can take so many bytes of a payload, with its head; 0 for none.
pub(super) fn check_length(bytes: u16) -> Result<(), RepeatedError> {
    let possible = REPEATED_HEAD_BYTES..=REPEATED_HEAD_BYTES + REPEATED_BYTES_MAX;
    if bytes == 0 || possible.contains(&usize::from(bytes)) {
        Ok(())
    } else {
        Err(RepeatedError::Length { bytes })
    }
}

impl RepeatedHead {
    /// Lays it out for the wire.
    #[must_use]
    pub fn encode(self) -> [u8; REPEATED_HEAD_BYTES] {
        let [a, b, c, d] = self.digest.to_le_bytes();
        let Called { collective, operator, datatype } = self.called;
        [a, b, c, d, collective, operator.code(), datatype.code(), 0]
    }

    /// Reads it, and the contribution behind it, from what follows a contribution. None if nothing does.
    ///
    /// # Errors
    /// If the bytes are none that this version defines.
    pub fn decode(repeated: &[u8]) -> Result<Option<(Self, &[u8])>, RepeatedError> {
        if repeated.is_empty() {
            return Ok(None);
        }
        let Some((head, bytes)) = repeated.split_first_chunk::<REPEATED_HEAD_BYTES>() else {
            return Err(RepeatedError::Length { bytes: repeated.len() as u16 });
        };
        let &[a, b, c, d, collective, operator, datatype, reserved] = head;
        if reserved != 0 {
            return Err(RepeatedError::Reserved);
        }
        let (operator, datatype) = (Operator::from_code(operator)?, Datatype::from_code(datatype)?);
        if bytes.len() > REPEATED_BYTES_MAX || bytes.len() % datatype.size_bytes() != 0 {
            return Err(RepeatedError::Length { bytes: repeated.len() as u16 });
        }
        let called = Called { collective, operator, datatype };
        Ok(Some((Self { called, digest: u32::from_le_bytes([a, b, c, d]) }, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any bytes: what decodes is the only encoding of what it says.
        #[test]
        fn repeated_contributions_have_one_encoding(mut bytes: Vec<u8>, is_likely: bool) {
            if is_likely && bytes.len() >= REPEATED_HEAD_BYTES {
                (bytes[5], bytes[6], bytes[7]) = (bytes[5] % 15, bytes[6] % 22, 0);
            }
            if let Ok(Some((head, behind))) = RepeatedHead::decode(&bytes) {
                prop_assert!(behind.len() <= REPEATED_BYTES_MAX);
                let again: Vec<u8> = head.encode().iter().chain(behind).copied().collect();
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_is_no_repeated_contribution_is_refused() {
        let called = Called { collective: 1, operator: Operator::Sum, datatype: Datatype::F64 };
        let head = RepeatedHead { called, digest: 0x0403_0201 };
        let mut bytes = Vec::from(head.encode());
        assert_eq!(RepeatedHead::decode(&bytes), Ok(Some((head, &[][..]))));
        assert_eq!(RepeatedHead::decode(&[]), Ok(None));
        assert_eq!(RepeatedHead::decode(&bytes[..7]), Err(RepeatedError::Length { bytes: 7 }));
        bytes.extend([5; 7]);
        assert_eq!(RepeatedHead::decode(&bytes), Err(RepeatedError::Length { bytes: 15 }));
        bytes.extend([5; 58]);
        assert_eq!(RepeatedHead::decode(&bytes), Err(RepeatedError::Length { bytes: 73 }));
        bytes.truncate(72);
        assert!(RepeatedHead::decode(&bytes).is_ok());
        bytes[7] = 1;
        assert_eq!(RepeatedHead::decode(&bytes), Err(RepeatedError::Reserved));
        bytes[7] = 0;
        bytes[6] = 99;
        assert!(matches!(RepeatedHead::decode(&bytes), Err(RepeatedError::Datatype(_))));
    }
}
