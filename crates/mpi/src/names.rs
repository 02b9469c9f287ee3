//! The numbers of `tributary_core.h`.

use std::ffi::{c_int, c_void};

use tributary_client::report::Kind;
use tributary_client::{Blocks, Collective, Operation};
use tributary_wire::{Datatype, Operator};

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
}

const ALLREDUCE: u32 = 0;
const REDUCE: u32 = 1;
const BROADCAST: u32 = 2;
const BARRIER: u32 = 3;
const REDUCE_SCATTER: u32 = 4;
const ALLGATHER: u32 = 5;
const SCAN: u32 = 6;
const EXSCAN: u32 = 7;

/// A number that the header doesn't define: the shim is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the preload library passed {what} {value}, which is not defined")]
pub(crate) struct UnknownNumber {
    what: &'static str,
    value: u32,
}

impl COperation {
    pub(crate) fn operation(&self) -> Result<Operation, UnknownNumber> {
        let root = self.root;
        let collective = match self.collective {
            ALLREDUCE => Collective::Allreduce,
            REDUCE => Collective::Reduce { root },
            BROADCAST => Collective::Broadcast { root },
            BARRIER => return Ok(Operation::BARRIER),
            REDUCE_SCATTER if self.cuts.is_null() => {
                Collective::ReduceScatter { blocks: Blocks::Even }
            }
            REDUCE_SCATTER => Collective::ReduceScatter { blocks: Blocks::At(self.cuts) },
            ALLGATHER => Collective::Allgather,
            SCAN | EXSCAN => Collective::Scan { inclusive: self.collective == SCAN },
            value => return Err(UnknownNumber { what: "collective", value }),
        };
        let code =
            |what, value: u32| u8::try_from(value).map_err(|_| UnknownNumber { what, value });
        let datatype = Datatype::from_code(code("datatype", self.datatype)?)
            .map_err(|_| UnknownNumber { what: "datatype", value: self.datatype })?;
        let operator = Operator::from_code(code("operator", self.operator)?)
            .map_err(|_| UnknownNumber { what: "operator", value: self.operator })?;
        Ok(Operation {
            collective,
            datatype,
            operator,
            elements: self.elements,
            source: self.source.cast(),
            target: self.target.cast(),
        })
    }
}

/// The collective that C counts.
pub(crate) fn kind(collective: u32) -> Option<Kind> {
    match collective {
        ALLREDUCE => Some(Kind::Allreduce),
        REDUCE => Some(Kind::Reduce),
        BROADCAST => Some(Kind::Bcast),
        BARRIER => Some(Kind::Barrier),
        REDUCE_SCATTER => Some(Kind::ReduceScatter),
        ALLGATHER => Some(Kind::Allgather),
        SCAN => Some(Kind::Scan),
        EXSCAN => Some(Kind::Exscan),
        _ => None,
    }
}

/// `TRIBUTARY_FAILED`.
pub(crate) const FAILED: c_int = -1;
/// `TRIBUTARY_GIVEN_UP`.
pub(crate) const GIVEN_UP: c_int = -2;

/// `TRIBUTARY_EXPRESS_DONE`.
pub(crate) const EXPRESS_DONE: c_int = 0;
/// `TRIBUTARY_EXPRESS_REFUSED`.
pub(crate) const EXPRESS_REFUSED: c_int = 1;

/// `TRIBUTARY_PASS_UNAVAILABLE`: the core's own words say why.
pub(crate) const PASS_UNAVAILABLE: u32 = 5;

/// Why an operation went to the MPI beneath, for the report.
pub(crate) const PASS_REASONS: [&str; 12] = [
    "user-defined operator",
    "datatype that aggregation nodes don't know",
    "operator not defined on the datatype",
    "intercommunicator",
    "communicator not set up (made by a nonblocking call, or before MPI_Init)",
    "communicator not available",
    "no elements",
    "too long to pack",
    "arguments left to MPI to judge",
    "communicator revoked",
    "collective of one host on a communicator that spans several",
    "longer than what was measured to be faster than the MPI's",
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
        let first = ["ALLREDUCE", "REDUCE", "BROADCAST", "BARRIER"].map(|name| defines[name]);
        assert_eq!(first, [ALLREDUCE, REDUCE, BROADCAST, BARRIER]);
        let on_host = ["REDUCE_SCATTER", "ALLGATHER", "SCAN", "EXSCAN"].map(|name| defines[name]);
        assert_eq!(on_host, [REDUCE_SCATTER, ALLGATHER, SCAN, EXSCAN]);
        assert!((0..defines["COLLECTIVES"]).all(|collective| kind(collective).is_some()));
        assert_eq!(kind(defines["COLLECTIVES"]), None);
        let express = ["EXPRESS_DONE", "EXPRESS_REFUSED"].map(|name| defines[name] as c_int);
        assert_eq!(express, [EXPRESS_DONE, EXPRESS_REFUSED]);
        assert_eq!(defines["PASS_UNAVAILABLE"], PASS_UNAVAILABLE);
        assert_eq!(defines["PASS_REASONS"] as usize, PASS_REASONS.len());
    }
}
