//! Datatypes and operators by their numbers in C.

use tributary_wire::{Datatype, Operator};

use crate::failure::Failure;

/// `enum sharp_datatype`, from 0.
const DATATYPES: [Datatype; 12] = [
    Datatype::U32,
    Datatype::I32,
    Datatype::U64,
    Datatype::I64,
    Datatype::F32,
    Datatype::F64,
    Datatype::U16,
    Datatype::I16,
    Datatype::F16,
    Datatype::Bf16,
    Datatype::U8,
    Datatype::I8,
];

/// `enum sharp_reduce_op`, from 0.
const OPERATORS: [Operator; 12] = [
    Operator::Max,
    Operator::Min,
    Operator::Sum,
    Operator::Product,
    Operator::LogicalAnd,
    Operator::BitAnd,
    Operator::LogicalOr,
    Operator::BitOr,
    Operator::LogicalXor,
    Operator::BitXor,
    Operator::MaxLoc,
    Operator::MinLoc,
];

/// One bit for every datatype that can be reduced.
pub(crate) const DATATYPE_MASK: u64 = (1 << DATATYPES.len()) - 1;

/// The operator and datatype of a reduction.
///
/// # Errors
/// If a number stands for none, or the operator is not defined on the datatype.
pub(crate) fn reduction(op: u32, dtype: u32) -> Result<(Operator, Datatype), Failure> {
    let datatype = DATATYPES.get(dtype as usize).copied();
    let datatype = datatype.ok_or_else(|| {
        Failure::not_supported(format!("{dtype} is no datatype of enum sharp_datatype"))
    })?;
    let operator = OPERATORS.get(op as usize).copied();
    let operator = operator.ok_or_else(|| {
        Failure::not_supported(format!("{op} is no operator of enum sharp_reduce_op"))
    })?;
    if operator.applies_to(datatype) {
        return Ok((operator, datatype));
    }
    let (operator, datatype) = (operator.name(), datatype.name());
    Err(Failure::not_supported(format!("{operator} is not defined on {datatype}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_defined_is_taken_and_all_else_is_refused() {
        assert_eq!(reduction(2, 4), Ok((Operator::Sum, Datatype::F32)));
        assert_eq!(reduction(5, 11), Ok((Operator::BitAnd, Datatype::I8)));
        for (op, dtype) in [(12, 0), (u32::MAX, 0), (2, 12), (2, u32::MAX), (4, 4), (10, 0)] {
            assert!(reduction(op, dtype).is_err(), "{op} on {dtype}");
        }
    }
}
