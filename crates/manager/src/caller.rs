//! Callers, told apart by their tokens, and what each may have.
//!
//! A job belongs to the holder of the token with which it was admitted.

use alloc::string::String;

/// The holder of the token that a call carried.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// The operator's: it may do and see everything.
    #[default]
    Operator,
    /// A tenant's, by name: it may have jobs, and sees its own.
    Tenant(String),
}

/// What a tenant may hold at once; none for as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Jobs.
    pub jobs: Option<u32>,
    /// Groups, over all its jobs.
    pub groups: Option<u32>,
    /// Outstanding operations on any one aggregation node.
    pub osos: Option<u32>,
    /// Groups that may stream. Further ones send long vectors in segments.
    pub streams: Option<u32>,
}

impl Caller {
    /// Whether it may know about what `owner` has.
    #[must_use]
    pub fn may_see(&self, owner: &Self) -> bool {
        *self == Self::Operator || self == owner
    }

    /// The tenant's name; none for the operator.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Operator => None,
            Self::Tenant(name) => Some(name),
        }
    }
}

/// The holder that a record or a report names.
impl From<Option<String>> for Caller {
    fn from(tenant: Option<String>) -> Self {
        tenant.map_or(Self::Operator, Self::Tenant)
    }
}
