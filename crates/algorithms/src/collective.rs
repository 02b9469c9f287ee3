//! The collectives, with the names and numbers that the C interface, selection, schedules, tuning files
//! and the report share.

/// A collective operation, as all ranks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank gets the reduction of all.
    Allreduce,
    /// One rank gets the reduction of all.
    Reduce {
        /// That rank.
        root: u32,
    },
    /// Every rank gets the vector of one.
    Broadcast {
        /// That rank.
        root: u32,
    },
    /// No rank leaves before every rank has entered. Takes no elements.
    Barrier,
    /// Every rank gets its block of the reduction of all. A schedule leaves part `rank` of
    /// [`Split::new(elements, ranks)`](crate::Split) at its position in the vector, and partial results
    /// or whole ones, in the rest of the vector.
    ReduceScatter,
    /// Every rank gets the contributions of all, one after the other. A schedule expects each rank's
    /// part at its position in the vector, as [`Self::ReduceScatter`] leaves it.
    Allgather,
    /// Every rank gets the reduction of the ranks up to and including itself.
    Scan,
    /// Every rank but the first gets the reduction of the ranks before it.
    Exscan,
}

/// A collective without its root. The numbers are those of the C interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum CollectiveKind {
    /// `MPI_Allreduce` and its nonblocking form.
    Allreduce = 0,
    /// `MPI_Reduce` and its nonblocking form.
    Reduce = 1,
    /// `MPI_Barrier` and its nonblocking form.
    Barrier = 2,
    /// `MPI_Bcast` and its nonblocking form.
    #[cfg_attr(feature = "serde", serde(rename = "bcast"))]
    Broadcast = 3,
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block` and their nonblocking forms.
    ReduceScatter = 4,
    /// `MPI_Allgather` and its nonblocking form.
    Allgather = 5,
    /// `MPI_Scan` and its nonblocking form.
    Scan = 6,
    /// `MPI_Exscan` and its nonblocking form.
    Exscan = 7,
}

impl Collective {
    /// The collective without its root.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> CollectiveKind {
        match self {
            Self::Allreduce => CollectiveKind::Allreduce,
            Self::Reduce { .. } => CollectiveKind::Reduce,
            Self::Broadcast { .. } => CollectiveKind::Broadcast,
            Self::Barrier => CollectiveKind::Barrier,
            Self::ReduceScatter => CollectiveKind::ReduceScatter,
            Self::Allgather => CollectiveKind::Allgather,
            Self::Scan => CollectiveKind::Scan,
            Self::Exscan => CollectiveKind::Exscan,
        }
    }

    /// The root, if the collective has one.
    #[must_use]
    pub const fn root(self) -> Option<u32> {
        match self {
            Self::Reduce { root } | Self::Broadcast { root } => Some(root),
            _ => None,
        }
    }

    /// Whether operands are combined.
    #[must_use]
    pub const fn is_reduction(self) -> bool {
        !matches!(self, Self::Broadcast { .. } | Self::Barrier | Self::Allgather)
    }
}

impl CollectiveKind {
    /// Every collective, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Allreduce,
        Self::Reduce,
        Self::Barrier,
        Self::Broadcast,
        Self::ReduceScatter,
        Self::Allgather,
        Self::Scan,
        Self::Exscan,
    ];

    /// The collective with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// The collective with this root; those without a root ignore it.
    #[must_use]
    pub const fn rooted_at(self, root: u32) -> Collective {
        match self {
            Self::Allreduce => Collective::Allreduce,
            Self::Reduce => Collective::Reduce { root },
            Self::Barrier => Collective::Barrier,
            Self::Broadcast => Collective::Broadcast { root },
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::Allgather => Collective::Allgather,
            Self::Scan => Collective::Scan,
            Self::Exscan => Collective::Exscan,
        }
    }

    /// Its name in commands, tables, tuning files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
            Self::Broadcast => "bcast",
            Self::ReduceScatter => "reduce_scatter",
            Self::Allgather => "allgather",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }

    /// The collective with this [name](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_collectives_go_forth_and_back() {
        for (number, kind) in (0..).zip(CollectiveKind::ALL) {
            assert_eq!(kind as u32, number);
            assert_eq!(CollectiveKind::from_number(number), Some(kind));
            assert_eq!(CollectiveKind::from_name(kind.name()), Some(kind));
            assert_eq!(kind.rooted_at(3).kind(), kind);
            assert!(kind.rooted_at(3).root().is_none_or(|root| root == 3));
        }
        assert_eq!(CollectiveKind::from_number(CollectiveKind::ALL.len() as u32), None);
        assert_eq!(CollectiveKind::from_name("alltoall"), None);
    }
}
