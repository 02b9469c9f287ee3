//! The paths that are measured, and what their starts gave.

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{CollectiveKind, GROUP_BYTES_MAX, GROUP_MEMBERS_MAX, Radices};
use tributary_settings::{Requirement, knobs};
use tributary_tuning::{AlgorithmChoice, Measurement, MessageCarrier, Method, Way};

use crate::case::{Case, Collective, Library};
use crate::rows::{Measured, Row};
use crate::said::Outcome;

/// Numbers of leaders per host to try, up to the number of ranks.
pub const LEADERS: [u32; 5] = [1, 2, 4, 8, 16];

/// Host algorithms that are measured by name; `auto` takes the others.
const NAMED: [AlgorithmChoice; 4] = [
    AlgorithmChoice::RecursiveDoubling,
    AlgorithmChoice::Rabenseifner,
    AlgorithmChoice::Ring,
    AlgorithmChoice::Linear,
];

/// What the launcher starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hosts.
    pub hosts: u32,
    /// Ranks, on all of them.
    pub ranks: u32,
}

/// A path, and what was measured on it so far.
#[derive(Debug)]
pub struct MeasuredPath {
    method: Method,
    carrier: MessageCarrier,
    algorithm: AlgorithmChoice,
    /// The levels of replicated groups.
    groups: Option<Radices>,
    leaders: u32,
    /// What the starts gave.
    pub measured: Measured,
    /// Whether it is left out.
    pub has_failed: bool,
}

/// The paths between hosts.
#[must_use]
pub fn paths(shape: Shape, has_manager: bool) -> Vec<MeasuredPath> {
    let ranks_per_host = shape.ranks / shape.hosts;
    // Between two hosts the ring is Rabenseifner's algorithm, and linear is recursive doubling.
    let named = if shape.hosts == 2 { &NAMED[..2] } else { &NAMED[..] };
    let named = named
        .iter()
        .map(|algorithm| MeasuredPath { algorithm: *algorithm, ..MeasuredPath::direct() });
    let more = LEADERS.into_iter().filter(|leaders| (2..=ranks_per_host).contains(leaders));
    let more = more.map(|leaders| MeasuredPath { leaders, ..MeasuredPath::direct() });
    let divisions = if shape.hosts > 2 {
        Plan::smallest_divisions(shape.hosts, GROUP_MEMBERS_MAX)
    } else {
        Vec::new()
    };
    let groups = divisions.into_iter().map(MeasuredPath::in_replicated_groups);
    let tree = MeasuredPath { method: Method::Tree, ..MeasuredPath::direct() };
    [MeasuredPath::direct()]
        .into_iter()
        .chain(named)
        .chain(more)
        .chain(groups)
        .chain(has_manager.then_some(tree))
        .collect()
}

/// What a path of this method must have: what is measured is what was named.
#[must_use]
pub fn requirement_of(method: Method) -> Requirement {
    match method {
        Method::Tree => Requirement::Tree,
        Method::Direct => Requirement::Between,
    }
}

impl MeasuredPath {
    /// Direct links, by the algorithm that the library takes.
    #[must_use]
    pub fn direct() -> Self {
        Self {
            method: Method::Direct,
            carrier: MessageCarrier::Links,
            algorithm: AlgorithmChoice::Auto,
            groups: None,
            leaders: 1,
            measured: Measured::default(),
            has_failed: false,
        }
    }

    /// Replicated groups in these levels.
    fn in_replicated_groups(levels: Radices) -> Self {
        let carrier = MessageCarrier::Datagrams;
        Self { carrier, groups: Some(levels), ..Self::direct() }
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        name(self.method, self.carrier, self.algorithm, self.groups, self.leaders)
    }

    /// What names it to the library: knobs and their values.
    #[must_use]
    pub fn knobs(&self) -> Vec<(&'static str, String)> {
        let between = match (self.method, self.carrier) {
            (Method::Direct, MessageCarrier::Datagrams) => "replicated",
            (method, _) => method.name(),
        };
        let groups = self.groups.map_or_else(|| "auto".to_owned(), |groups| groups.to_string());
        vec![
            (knobs::BETWEEN_HOSTS.name, between.to_owned()),
            (knobs::GROUPS.name, groups),
            (knobs::REQUIRE.name, requirement_of(self.method).name().to_owned()),
            (knobs::DIRECT_ALGORITHM.name, self.algorithm.name().to_owned()),
            (knobs::LEADERS.name, self.leaders.to_string()),
            (knobs::SUB_PARTITIONS.name, "1".to_owned()),
            (knobs::TUNING.name, "off".to_owned()),
        ]
    }

    /// Those of the cases that it carries in a way of its own.
    #[must_use]
    pub fn cases(&self, all: &[Case]) -> Vec<Case> {
        let is_own = |case: &&Case| match (self.carrier, self.algorithm, self.leaders) {
            (MessageCarrier::Datagrams, ..) => {
                matches!(case.collective, Collective::Allreduce | Collective::Barrier)
                    && case.size_bytes <= GROUP_BYTES_MAX
            }
            (_, AlgorithmChoice::Auto, 1) => true,
            _ => case.collective == Collective::Allreduce,
        };
        all.iter().filter(is_own).copied().collect()
    }

    /// Takes what a start gave, if it was this path.
    ///
    /// # Errors
    /// Why it can't be used, for people.
    pub fn take(&mut self, outcome: Outcome, cases: &[Case]) -> Result<(), String> {
        let report = outcome.report.as_ref();
        if self.carrier == MessageCarrier::Datagrams {
            let communicators = report.into_iter().flat_map(|report| &report.communicators);
            let carriers: Vec<&str> = communicators.map(|one| one.carriers.as_str()).collect();
            let levels = carriers.iter().find_map(|carriers| levels_in(carriers));
            if levels != self.groups {
                return Err(format!("no datagrams carried it ({})", carriers.join("; ")));
            }
        }
        if let Some(passed) = report.map(|report| report.passed_through).filter(|it| *it > 0) {
            return Err(format!("{passed} operations were left to the MPI"));
        }
        self.measured.take(Library::Ours, outcome)?;
        let wrong: u64 = self.measured.rows(cases).iter().map(|row| row.wrong).sum();
        if wrong > 0 {
            return Err(format!("{wrong} elements of results are wrong: please tell the project"));
        }
        Ok(())
    }

    /// Its rows of the table.
    ///
    /// # Panics
    /// If a collective has no kind: all that are timed have one.
    #[must_use]
    pub fn measurements(&self, cases: &[Case], shape: Shape) -> Vec<Measurement> {
        let kind = |collective: Collective| CollectiveKind::from_name(collective.name());
        let rows = self.measured.rows(cases).into_iter();
        let measurement = |row: Row| Measurement {
            collective: kind(row.case.collective)
                .expect("every collective that is timed has a kind"),
            hosts: shape.hosts,
            ranks: shape.ranks,
            len_bytes: row.size_bytes,
            method: self.method,
            carrier: self.carrier,
            algorithm: self.algorithm,
            groups: self.groups,
            leaders: self.leaders,
            sub_partitions: 1,
            time_us: row.times.median,
            quartiles_us: Some([row.times.q1, row.times.q3]),
        };
        rows.map(measurement).collect()
    }

    /// Whether a row is of this path.
    #[must_use]
    pub fn is_of(&self, row: &Measurement) -> bool {
        (self.method, self.carrier, self.algorithm, self.groups, self.leaders)
            == (row.method, row.carrier, row.algorithm, row.groups, row.leaders)
    }

    /// How its operations went, if that is known.
    #[must_use]
    pub fn way(&self) -> Option<Way> {
        match (self.method, self.carrier) {
            (Method::Tree, _) => Some(Way::Tree),
            (Method::Direct, MessageCarrier::Datagrams) => self.groups.map(Way::Groups),
            (Method::Direct, MessageCarrier::Links) => self.algorithm.algorithm().map(Way::Links),
        }
    }
}

/// A path's name, for people.
#[must_use]
pub fn name(
    method: Method,
    carrier: MessageCarrier,
    algorithm: AlgorithmChoice,
    groups: Option<Radices>,
    leaders: u32,
) -> String {
    let leaders = if leaders > 1 { format!(", {leaders} leaders") } else { String::new() };
    match (method, carrier) {
        (Method::Tree, _) => "tree".to_owned(),
        (Method::Direct, MessageCarrier::Datagrams) => match groups {
            Some(groups) => format!("replicated, {groups}"),
            None => "replicated".to_owned(),
        },
        (Method::Direct, MessageCarrier::Links) => format!("direct, {}{leaders}", algorithm.name()),
    }
}

/// The levels of replicated groups in a report's words about carriers.
fn levels_in(carriers: &str) -> Option<Radices> {
    let (_, levels) = carriers.split_once("datagrams, mixed_radix:")?;
    levels.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: u32, ranks: u32, has_manager: bool) -> Vec<String> {
        paths(Shape { hosts, ranks }, has_manager).iter().map(MeasuredPath::name).collect()
    }

    #[test]
    fn every_path_is_there_once() {
        assert_eq!(
            names(8, 8, true),
            [
                "direct, auto",
                "direct, recursive-doubling",
                "direct, rabenseifner",
                "direct, ring",
                "direct, linear",
                "replicated, 8",
                "replicated, 4x2",
                "replicated, 2x2x2",
                "tree"
            ]
        );
        assert_eq!(
            names(2, 8, false),
            [
                "direct, auto",
                "direct, recursive-doubling",
                "direct, rabenseifner",
                "direct, auto, 2 leaders",
                "direct, auto, 4 leaders"
            ]
        );
    }

    #[test]
    fn a_path_is_timed_where_it_differs_from_others() {
        let case = |collective, size_bytes| Case {
            collective,
            nonblocking: false,
            in_place: false,
            size_bytes,
            blocks: 1,
            warmup: 0,
            calls_min: 1,
        };
        let all = [
            case(Collective::Allreduce, 8),
            case(Collective::Allreduce, 4096),
            case(Collective::Bcast, 8),
            case(Collective::Barrier, 0),
        ];
        let ring = MeasuredPath { algorithm: AlgorithmChoice::Ring, ..MeasuredPath::direct() };
        let groups = MeasuredPath::in_replicated_groups(Radices::new(&[4, 2]).unwrap());
        assert_eq!(MeasuredPath::direct().cases(&all), all);
        assert_eq!(ring.cases(&all), all[..2]);
        assert_eq!(groups.cases(&all), [all[0], all[3]]);
    }

    #[test]
    fn levels_are_read_from_what_the_library_reports() {
        let levels = Radices::new(&[4, 2]);
        let algorithm = tributary_algorithms::Algorithm::MixedRadix { radices: levels.unwrap() };
        assert_eq!(levels_in(&format!("links and datagrams, {algorithm}")), levels);
        assert_eq!(levels_in(&format!("links and multicast datagrams, {algorithm}")), levels);
        assert_eq!(levels_in(&format!("links and datagrams, {algorithm} by 2 leaves")), levels);
        assert_eq!(levels_in("links; h1: datagrams of other hosts do not come here"), None);
        assert_eq!(levels_in("udp"), None);
    }
}
