//! Which operations the program takes, in which types, and who folds what it gathers.

use tributary_wire::{Datatype, Operator};

use crate::layout::FLOAT_SUMS_MAX;

/// The side that folds the contributions that the program has gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The program.
    InKernel,
    /// The process: the packet of the last contribution goes up to it.
    InProcess,
}

/// The side that folds segments of so many elements, of so many children; none if the program leaves such segments to
/// the process altogether.
///
/// `is_defined` and `is_folded_here` of `ebpf/arithmetic.h` decide it in the program; a test compares them.
#[must_use]
pub fn fold(
    operator: Operator,
    datatype: Datatype,
    elements: u32,
    children: usize,
) -> Option<Fold> {
    if !operator.is_reduction() || !operator.applies_to(datatype) {
        return None;
    }
    let sums = elements as usize * (children - 1);
    let is_float = matches!(datatype, Datatype::F32 | Datatype::F64);
    Some(match operator {
        _ if datatype.is_integer() => Fold::InKernel,
        Operator::Min | Operator::Max if is_float => Fold::InKernel,
        Operator::Sum if is_float && sums <= FLOAT_SUMS_MAX => Fold::InKernel,
        _ => Fold::InProcess,
    })
}

/// What the program takes, one line an operator: its name, the types that it folds, and those whose
/// contributions it gathers for the process. A barrier has no elements, and is taken.
pub fn lines() -> impl Iterator<Item = (&'static str, String, String)> {
    Operator::ALL.into_iter().map(|operator| {
        let names = |fold_by| {
            let all = Datatype::ALL.into_iter();
            let names: Vec<_> = all
                .filter(|datatype| fold(operator, *datatype, 1, 2) == Some(fold_by))
                .map(Datatype::name)
                .collect();
            names.join(" ")
        };
        match operator {
            Operator::Barrier => (operator.name(), "no elements".to_owned(), String::new()),
            _ => (operator.name(), names(Fold::InKernel), names(Fold::InProcess)),
        }
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
                let name = format!("{} of {}", operator.name(), datatype.name());
                let size_bytes = user_space::element_bytes(operator, datatype);
                let expected = fold(operator, datatype, 1, 2).map_or(0, |_| datatype.size_bytes());
                assert_eq!(size_bytes, expected, "{name}");
                if expected == 0 {
                    continue;
                }
                for (elements, children) in
                    [(1, 1), (1024, 1), (64, 8), (65, 8), (448, 2), (449, 2)]
                {
                    let here = user_space::is_folded_here(operator, datatype, elements, children);
                    let by = if here { Fold::InKernel } else { Fold::InProcess };
                    let expected = fold(operator, datatype, elements, children as usize);
                    assert_eq!(Some(by), expected, "{name}: {elements} of {children}");
                }
            }
        }
    }

    #[test]
    fn longer_sums_of_floats_are_left_to_the_process() {
        let fold = |datatype, elements| fold(Operator::Sum, datatype, elements, 8);
        assert_eq!(fold(Datatype::F32, 64), Some(Fold::InKernel));
        assert_eq!(fold(Datatype::F32, 65), Some(Fold::InProcess));
        assert_eq!(fold(Datatype::I32, 256), Some(Fold::InKernel));
    }

    #[test]
    fn every_operator_has_its_line() {
        let lines: Vec<_> = lines().collect();
        assert_eq!(lines.len(), Operator::ALL.len());
        let gathered = "f16 bf16 f32-complex f64-complex".to_owned();
        assert_eq!(lines[0], ("sum", "i8 i16 i32 i64 u8 u16 u32 u64 f32 f64".to_owned(), gathered));
        assert_eq!(lines[4].1, "");
        assert_eq!(lines[13], ("broadcast", String::new(), String::new()));
    }
}
