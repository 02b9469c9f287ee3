//! What the switch counts, in the form in which it tells it.

use serde::{Deserialize, Serialize};

/// Frames of one port, from the member and to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounts {
    /// Taken from the member.
    pub received: u64,
    /// Handed to the member.
    pub sent: u64,
    /// Not handed over, by the chance that was asked for.
    pub lost: u64,
    /// Dropped because a queue was full.
    pub overflowed: u64,
    /// From the member, for an address that nobody has.
    pub unknown: u64,
    /// From the member, multicast where there is none.
    pub blocked: u64,
    /// Not taken by the member's network, whose interface was down.
    pub refused: u64,
    /// From the member, dropped before the switch could read them.
    pub unread: u64,
    /// Most that waited for the member at once.
    pub most_frames: u64,
}

impl PortCounts {
    /// The counts since `earlier`. The most at once is that of the whole time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received - earlier.received,
            sent: self.sent - earlier.sent,
            lost: self.lost - earlier.lost,
            overflowed: self.overflowed - earlier.overflowed,
            unknown: self.unknown - earlier.unknown,
            blocked: self.blocked - earlier.blocked,
            refused: self.refused - earlier.refused,
            unread: self.unread - earlier.unread,
            most_frames: self.most_frames,
        }
    }

    /// Frames that nobody asked to drop.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.overflowed + self.refused + self.unread
    }
}

/// How many lengths of time fell into each class: eight classes for each power of two of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    classes: Vec<u64>,
    most_ns: u64,
}

const CLASSES_PER_DOUBLING: u64 = 8;
const CLASSES: usize = 40 * CLASSES_PER_DOUBLING as usize;

impl Default for Lengths {
    fn default() -> Self {
        Self { classes: vec![0; CLASSES], most_ns: 0 }
    }
}

impl Lengths {
    /// Counts one.
    pub fn count(&mut self, length_ns: u64) {
        self.classes[class_of(length_ns).min(CLASSES - 1)] += 1;
        self.most_ns = self.most_ns.max(length_ns);
    }

    /// The lengths since `earlier`. The longest is that of the whole time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.classes.iter().zip(&earlier.classes);
        Self { classes: pairs.map(|(now, then)| now - then).collect(), most_ns: self.most_ns }
    }

    /// The length that a share of all does not exceed, an eighth too long at most; `None` without any.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let total: u64 = self.classes.iter().sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(end_of(class).min(self.most_ns))
    }

    /// The longest.
    #[must_use]
    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }
}

/// Lengths below eight have a class each; of the others the three bits behind the first decide.
fn class_of(length_ns: u64) -> usize {
    if length_ns < CLASSES_PER_DOUBLING {
        return length_ns as usize;
    }
    let shift = length_ns.ilog2() - 3;
    (u64::from(shift + 1) * CLASSES_PER_DOUBLING + (length_ns >> shift) - CLASSES_PER_DOUBLING)
        as usize
}

/// The longest length of a class.
fn end_of(class: usize) -> u64 {
    let (doubling, eighth) =
        (class as u64 / CLASSES_PER_DOUBLING, class as u64 % CLASSES_PER_DOUBLING);
    match doubling {
        0 => eighth,
        _ => ((CLASSES_PER_DOUBLING + eighth + 1) << (doubling - 1)) - 1,
    }
}

/// What a lab's switch has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwitchCounts {
    /// Why the switch has no real-time priority; `None` if it has.
    pub without_priority: Option<String>,
    /// Each member and its port.
    pub ports: Vec<(String, PortCounts)>,
    /// How much later than due frames were sent.
    pub late: Lengths,
    /// Time since the switch started.
    pub elapsed_ns: u64,
    /// Processor time of the switch, and in it that of the members' networks where frames came in.
    pub switch_ns: u64,
    /// Processor time of all processes of the lab, the switch among them.
    pub lab_ns: u64,
}

impl SwitchCounts {
    /// What was done since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let ports = self.ports.iter().zip(&earlier.ports);
        Self {
            without_priority: self.without_priority.clone(),
            ports: ports.map(|(now, then)| (now.0.clone(), now.1.since(&then.1))).collect(),
            late: self.late.since(&earlier.late),
            elapsed_ns: self.elapsed_ns - earlier.elapsed_ns,
            switch_ns: self.switch_ns - earlier.switch_ns,
            lab_ns: self.lab_ns.saturating_sub(earlier.lab_ns),
        }
    }

    /// The sum over all ports.
    #[must_use]
    pub fn total(&self, of: impl Fn(&PortCounts) -> u64) -> u64 {
        self.ports.iter().map(|(_, counts)| of(counts)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_gap() {
        for class in 0..CLASSES - 1 {
            assert_eq!(class_of(end_of(class)), class);
            assert_eq!(class_of(end_of(class) + 1), class + 1);
        }
    }

    #[test]
    fn quantiles_are_an_eighth_too_long_at_most() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.quantile_ns(0.5), None);
        (1..=1_000).for_each(|length| lengths.count(length * 100));
        let before = lengths.clone();
        for (share, exact) in [(0.001, 100), (0.5, 50_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = lengths.quantile_ns(share).unwrap();
            assert!((exact..=exact + exact / 8).contains(&found), "{share}: {found}");
        }
        lengths.count(7);
        assert_eq!(lengths.since(&before).quantile_ns(1.0), Some(7));
        assert_eq!(lengths.most_ns(), 100_000);
    }
}
