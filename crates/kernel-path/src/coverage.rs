//! Which operations the program takes, in which types; the process does the others.

use tributary_wire::{Datatype, Operator};

/// Whether the program combines such elements.
///
/// `element_bytes` of `ebpf/arithmetic.h` decides it in the program; a test compares them.
#[must_use]
pub fn takes(operator: Operator, datatype: Datatype) -> bool {
    let is_float = matches!(datatype, Datatype::F32 | Datatype::F64);
    match operator {
        Operator::Sum | Operator::Min | Operator::Max => datatype.is_integer() || is_float,
        Operator::Product
        | Operator::BitAnd
        | Operator::BitOr
        | Operator::BitXor
        | Operator::LogicalAnd
        | Operator::LogicalOr
        | Operator::LogicalXor => datatype.is_integer(),
        Operator::MinLoc | Operator::MaxLoc | Operator::Barrier | Operator::Broadcast => false,
    }
}

/// What the program takes, one line an operator: its name, and the names of the types. A barrier has
/// no elements, and is taken.
pub fn lines() -> impl Iterator<Item = (&'static str, String)> {
    Operator::ALL.into_iter().map(|operator| {
        let names: Vec<_> = Datatype::ALL
            .into_iter()
            .filter(|datatype| takes(operator, *datatype))
            .map(Datatype::name)
            .collect();
        let types = match operator {
            Operator::Barrier => "no elements".to_owned(),
            _ if names.is_empty() => "left to the process".to_owned(),
            _ => names.join(" "),
        };
        (operator.name(), types)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_space;

    #[test]
    fn the_table_is_the_programs() {
        for operator in Operator::ALL {
            for datatype in Datatype::ALL {
                let size_bytes = user_space::element_bytes(operator, datatype);
                let expected = if takes(operator, datatype) { datatype.size_bytes() } else { 0 };
                assert_eq!(size_bytes, expected, "{} of {}", operator.name(), datatype.name());
            }
        }
    }

    #[test]
    fn every_operator_has_its_line() {
        let lines: Vec<_> = lines().collect();
        assert_eq!(lines.len(), Operator::ALL.len());
        assert_eq!(lines[0], ("sum", "i8 i16 i32 i64 u8 u16 u32 u64 f32 f64".to_owned()));
        assert_eq!(lines[4].1, "left to the process");
    }
}
