//! What is timed.

/// A collective of the measuring program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the sum of all vectors.
    Allreduce,
    /// Rank 0 gets the sum of all vectors.
    Reduce,
    /// Every rank gets rank 0's vector.
    Bcast,
    /// No data.
    Barrier,
    /// Every rank gets all vectors.
    Allgather,
    /// Every rank gets its part of the sum of all vectors.
    ReduceScatter,
    /// Every rank gets the sum of the vectors up to its own.
    Scan,
}

/// A collective in one form and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// A start and a wait.
    pub nonblocking: bool,
    /// The contribution lies where the result comes.
    pub in_place: bool,
    /// Bytes that a rank contributes.
    pub size_bytes: u64,
    /// Blocks of calls that are timed.
    pub blocks: u64,
    /// Calls before them.
    pub warmup: u64,
    /// The least calls of a block of a collective in which every rank waits for all: ranks begin a block at different times, which
    /// counts in its first call.
    pub calls_min: u64,
}

/// What the measuring program runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The preload library.
    Ours,
    /// The MPI alone.
    Plain,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Allreduce,
        Self::Reduce,
        Self::Bcast,
        Self::Barrier,
        Self::Allgather,
        Self::ReduceScatter,
        Self::Scan,
    ];

    /// As it is typed, and as the measuring program has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Reduce => "reduce",
            Self::Bcast => "bcast",
            Self::Barrier => "barrier",
            Self::Allgather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
        }
    }

    /// Whether ranks have a vector.
    #[must_use]
    pub fn has_data(self) -> bool {
        self != Self::Barrier
    }

    /// Whether MPI has a form of it in place.
    #[must_use]
    pub fn has_place(self) -> bool {
        self.has_data() && self != Self::Bcast
    }
}

impl Case {
    /// The collective's name, with an `i` before it as in MPI if the call does not block.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", if self.nonblocking { "i" } else { "" }, self.collective.name())
    }

    /// As the measuring program reads it.
    #[must_use]
    pub fn word(&self) -> String {
        let form = if self.nonblocking { "n" } else { "b" };
        let place = if self.in_place { "i" } else { "" };
        let name = self.collective.name();
        let calls = if self.calls_min > 1 { format!(":{}", self.calls_min) } else { String::new() };
        let Self { size_bytes, blocks, warmup, .. } = self;
        format!("{name}:{size_bytes}:{blocks}:{warmup}:{form}{place}{calls}")
    }
}

impl Library {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "tributary",
            Self::Plain => "plain MPI",
        }
    }

    /// For programs.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Ours => "tributary",
            Self::Plain => "plain_mpi",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measuring_program_knows_every_collective() {
        for collective in Collective::ALL {
            assert!(crate::SOURCE.contains(&format!("\"{}\"", collective.name())));
        }
    }
}
