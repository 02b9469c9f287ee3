//! The numbers of `tributary_core.h`.

use std::ffi::{c_int, c_void};

use tributary_client::{Blocks, Collective, CollectiveKind, Combiner, Operation};
use tributary_wire::{Datatype, Operator};

use crate::combiner::{CCombiner, Combining};

/// `tributary_operation`.
#[repr(C)]
pub(crate) struct COperation {
    collective: u32,
    root: u32,
    datatype: u32,
    operator: u32,
    elements: u64,
    source: *const c_void,
    target: *mut c_void,
    cuts: *const u64,
    combiner: CCombiner,
}

/// A number that the header doesn't define. The shim is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the preload library passed {what} {value}, which tributary_core.h does not define")]
pub(crate) struct UnknownNumber {
    what: &'static str,
    value: u32,
}

impl COperation {
    /// Its root, if it has one; else any number.
    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    /// How its elements combine, if the caller says it, and whether that commutes.
    pub(crate) fn combining(&self) -> Option<(Combining, bool)> {
        self.combiner.combining()
    }

    /// The operation, whose elements combine as `combiner` says, if there is one.
    pub(crate) fn operation(&self, combiner: Option<Combiner>) -> Result<Operation, UnknownNumber> {
        let unknown = UnknownNumber { what: "collective", value: self.collective };
        let collective = CollectiveKind::from_number(self.collective).ok_or(unknown)?;
        let collective = collective.rooted_at(self.root);
        if collective == Collective::Barrier {
            return Ok(Operation::BARRIER);
        }
        let (datatype, operator) = match combiner {
            Some(_) => (Datatype::U8, Operator::Broadcast),
            None => self.pair()?,
        };
        Ok(Operation {
            collective,
            datatype,
            operator,
            combiner,
            elements: self.elements,
            blocks: if self.cuts.is_null() { Blocks::Even } else { Blocks::At(self.cuts) },
            source: self.source.cast(),
            target: self.target.cast(),
        })
    }

    fn pair(&self) -> Result<(Datatype, Operator), UnknownNumber> {
        let code =
            |what, value: u32| u8::try_from(value).map_err(|_| UnknownNumber { what, value });
        let datatype = Datatype::from_code(code("datatype", self.datatype)?)
            .map_err(|_| UnknownNumber { what: "datatype", value: self.datatype })?;
        let operator = Operator::from_code(code("operator", self.operator)?)
            .map_err(|_| UnknownNumber { what: "operator", value: self.operator })?;
        Ok((datatype, operator))
    }
}

/// `TRIBUTARY_FAILED`.
pub(crate) const FAILED: c_int = -1;
/// `TRIBUTARY_GIVEN_UP`.
pub(crate) const GIVEN_UP: c_int = -2;

/// `TRIBUTARY_PASS_UNAVAILABLE`: the report gives the core's message instead.
pub(crate) const PASS_UNAVAILABLE: u32 = 5;

/// Why an operation went to the underlying MPI, for the report.
pub(crate) const PASS_REASONS: [&str; 20] = [
    "user-defined operator",
    "datatype that aggregation nodes don't know",
    "operator not defined on the datatype",
    "intercommunicator",
    "communicator not set up (made by a nonblocking call, or before MPI_Init)",
    "communicator not available",
    "no elements",
    "too long to pack",
    "arguments that MPI may refuse",
    "communicator revoked",
    "length at which the underlying MPI was measured to be faster",
    "derived datatype with gaps, in a reduction",
    "nonblocking call with an operator that only MPI can call, on a long vector",
    "operator that only MPI can call, on a long vector, which cannot go between these hosts",
    "element too long for an operator that only MPI can call",
    "not all members have this library",
    "not used often enough to be set up (TRIBUTARY_COMMUNICATORS_AFTER)",
    "memory of a device at some rank",
    "nonblocking call where buffers may be memory of a device",
    "reduction between hosts where a rank does not round to nearest, or only some flush subnormals",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Every `#define NAME NUMBER` of the header.
    fn defines() -> HashMap<String, u32> {
        let header = include_str!("../include/tributary_core.h");
        let define = |line: &str| {
            let mut words = line.strip_prefix("#define TRIBUTARY_")?.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        header.lines().filter_map(define).collect()
    }

    fn header_name(name: &str) -> String {
        name.to_uppercase().replace('-', "_")
    }

    #[test]
    fn header_numbers_are_those_of_the_wire() {
        let defines = defines();
        for datatype in Datatype::ALL {
            assert_eq!(defines[&header_name(datatype.name())], u32::from(datatype.code()));
        }
        for operator in Operator::ALL.into_iter().filter(|operator| operator.is_reduction()) {
            assert_eq!(defines[&header_name(operator.name())], u32::from(operator.code()));
        }
        assert_eq!(defines["BARRIER_OPERATOR"], u32::from(Operator::Barrier.code()));
        assert_eq!(defines["BROADCAST_OPERATOR"], u32::from(Operator::Broadcast.code()));
    }

    #[test]
    fn header_numbers_of_pairs_are_those_of_the_client() {
        let datatypes = defines()["PAIR_DATATYPES"];
        for (operator, datatype) in
            [(Operator::Sum, Datatype::I8), (Operator::LogicalXor, Datatype::F64Index)]
        {
            let number = u32::from(operator.code()) * datatypes + u32::from(datatype.code());
            assert_eq!(tributary_client::PairNumber::new(operator, datatype).0, number);
        }
    }

    #[test]
    fn header_numbers_are_those_of_this_file() {
        let defines = defines();
        for kind in CollectiveKind::ALL {
            let name = if kind == CollectiveKind::Broadcast { "broadcast" } else { kind.name() };
            assert_eq!(defines[&header_name(name)], kind as u32);
        }
        assert_eq!(defines["COLLECTIVES"] as usize, CollectiveKind::ALL.len());
        assert_eq!(defines["PASS_UNAVAILABLE"], PASS_UNAVAILABLE);
        assert_eq!(defines["PASS_REASONS"] as usize, PASS_REASONS.len());
    }
}
