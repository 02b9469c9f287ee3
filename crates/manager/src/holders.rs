//! The jobs that hold what another lacks.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use tributary_wire::JobId;

/// Jobs named in one refusal.
const NAMED_MAX: usize = 3;

/// The jobs that hold a resource, as far as the refused caller may know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Those that hold most, the largest first.
    named: Vec<Holder>,
    /// How many further jobs hold some, and how much.
    further: (u32, u64),
    /// What other tenants hold together.
    others: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    job: JobId,
    name: String,
    amount: u64,
}

impl Holders {
    /// Adds up `amounts` by job. `visible_name` is none for jobs that the refused caller may not know.
    pub(super) fn new<'a>(
        amounts: impl Iterator<Item = (JobId, u32)>,
        visible_name: impl Fn(JobId) -> Option<&'a str>,
    ) -> Self {
        let mut by_job = BTreeMap::<JobId, u64>::new();
        for (job, amount) in amounts {
            *by_job.entry(job).or_default() += u64::from(amount);
        }
        let mut holders = Self::default();
        for (job, amount) in by_job {
            match visible_name(job) {
                Some(name) => holders.named.push(Holder { job, name: name.into(), amount }),
                None => holders.others += amount,
            }
        }
        holders.named.sort_by_key(|holder| Reverse(holder.amount));
        let beyond = holders.named.split_off(holders.named.len().min(NAMED_MAX));
        holders.further = (beyond.len() as u32, beyond.iter().map(|it| it.amount).sum());
        holders
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { named, further: (further, further_amount), others } = self;
        let mut separator = "held by ";
        for Holder { job, name, amount } in named {
            write!(f, "{separator}job {job} `{name}` ({amount})")?;
            separator = ", ";
        }
        if *further > 0 {
            write!(f, "{separator}{further} further jobs ({further_amount})")?;
        }
        if *others > 0 {
            write!(f, "{separator}other tenants ({others})")?;
            separator = ", ";
        }
        if separator == "held by " { f.write_str("held by nobody") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn list_visible(amounts: &[(u32, u32)], visible: impl Fn(u32) -> bool) -> String {
        let amounts = amounts.iter().map(|(job, amount)| (JobId(*job), *amount));
        Holders::new(amounts, |job| visible(job.0).then_some("app")).to_string()
    }

    #[test]
    fn the_largest_come_first_and_the_rest_is_summed() {
        let amounts = [(1, 8), (2, 4), (1, 8), (3, 99), (4, 2), (5, 1), (6, 5)];
        assert_eq!(
            list_visible(&amounts, |_| true),
            "held by job 3 `app` (99), job 1 `app` (16), job 6 `app` (5), 3 further jobs (7)"
        );
        assert_eq!(
            list_visible(&amounts, |job| job == 4),
            "held by job 4 `app` (2), other tenants (125)"
        );
        assert_eq!(list_visible(&amounts, |_| false), "held by other tenants (127)");
        assert_eq!(list_visible(&[], |_| true), "held by nobody");
    }
}
