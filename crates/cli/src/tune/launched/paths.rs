//! The paths that are measured, and what their starts gave.

use anyhow::bail;
use tributary_algorithms::Radices;
use tributary_client::{CollectiveKind, knobs};
use tributary_measuring::{Case, Collective, Library, Measured, Outcome};
use tributary_tuning::{AlgorithmChoice, Measurement, MessageCarrier, Method, Way};

use super::super::{LEADERS, requirement_of};
use crate::flags::CollectiveFlag;

/// The longest vector that replicated groups carry.
const GROUPS_MAX_BYTES: u64 = 1024;

/// Host algorithms that are measured by name; `auto` takes the others.
const NAMED: [AlgorithmChoice; 4] = [
    AlgorithmChoice::RecursiveDoubling,
    AlgorithmChoice::Rabenseifner,
    AlgorithmChoice::Ring,
    AlgorithmChoice::Linear,
];

/// What the launcher starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) hosts: u32,
    pub(super) ranks: u32,
}

/// A path, and what was measured on it so far.
#[derive(Debug)]
pub(super) struct MeasuredPath {
    method: Method,
    carrier: MessageCarrier,
    algorithm: AlgorithmChoice,
    leaders: u32,
    pub(super) measured: Measured,
    /// The levels of replicated groups, as the library has reported them.
    levels: Option<Radices>,
    /// Whether it is left out.
    pub(super) has_failed: bool,
}

/// The paths between hosts.
pub(super) fn paths(shape: Shape, has_manager: bool) -> Vec<MeasuredPath> {
    let ranks_per_host = shape.ranks / shape.hosts;
    // Between two hosts the ring is Rabenseifner's algorithm, and linear is recursive doubling.
    let named = if shape.hosts == 2 { &NAMED[..2] } else { &NAMED[..] };
    let named = named
        .iter()
        .map(|algorithm| MeasuredPath { algorithm: *algorithm, ..MeasuredPath::direct() });
    let more = LEADERS.into_iter().filter(|leaders| (2..=ranks_per_host).contains(leaders));
    let more = more.map(|leaders| MeasuredPath { leaders, ..MeasuredPath::direct() });
    let groups = MeasuredPath { carrier: MessageCarrier::Datagrams, ..MeasuredPath::direct() };
    let tree = MeasuredPath { method: Method::Tree, ..MeasuredPath::direct() };
    [MeasuredPath::direct()]
        .into_iter()
        .chain(named)
        .chain(more)
        .chain((shape.hosts > 2).then_some(groups))
        .chain(has_manager.then_some(tree))
        .collect()
}

pub(super) fn measured_collective(flag: CollectiveFlag) -> Collective {
    match flag {
        CollectiveFlag::Allreduce => Collective::Allreduce,
        CollectiveFlag::Reduce => Collective::Reduce,
        CollectiveFlag::Barrier => Collective::Barrier,
        CollectiveFlag::Bcast => Collective::Bcast,
    }
}

impl MeasuredPath {
    /// Direct links, by the algorithm that the library takes.
    pub(super) fn direct() -> Self {
        Self {
            method: Method::Direct,
            carrier: MessageCarrier::Links,
            algorithm: AlgorithmChoice::Auto,
            leaders: 1,
            measured: Measured::default(),
            levels: None,
            has_failed: false,
        }
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        name(self.method, self.carrier, self.algorithm, self.leaders)
    }

    /// What names it to the library.
    pub(super) fn knobs(&self) -> Vec<(&'static str, String)> {
        let between = match (self.method, self.carrier) {
            (Method::Direct, MessageCarrier::Datagrams) => "replicated",
            (method, _) => method.name(),
        };
        vec![
            (knobs::BETWEEN_HOSTS.name, between.to_owned()),
            // What is measured is what was named.
            (knobs::REQUIRE.name, requirement_of(self.method).name().to_owned()),
            (knobs::DIRECT_ALGORITHM.name, self.algorithm.name().to_owned()),
            (knobs::LEADERS.name, self.leaders.to_string()),
            (knobs::SUB_PARTITIONS.name, "1".to_owned()),
            (knobs::TUNING.name, "off".to_owned()),
        ]
    }

    /// Those of the cases that it carries in a way of its own.
    pub(super) fn cases(&self, all: &[Case]) -> Vec<Case> {
        let is_own = |case: &&Case| match (self.carrier, self.algorithm, self.leaders) {
            (MessageCarrier::Datagrams, ..) => {
                matches!(case.collective, Collective::Allreduce | Collective::Barrier)
                    && case.size_bytes <= GROUPS_MAX_BYTES
            }
            (_, AlgorithmChoice::Auto, 1) => true,
            _ => case.collective == Collective::Allreduce,
        };
        all.iter().filter(is_own).copied().collect()
    }

    /// Takes what a start gave, if it was this path.
    pub(super) fn take(&mut self, outcome: Outcome, cases: &[Case]) -> anyhow::Result<()> {
        let report = outcome.report.as_ref();
        if self.carrier == MessageCarrier::Datagrams {
            let communicators = report.into_iter().flat_map(|report| &report.communicators);
            let carriers: Vec<&str> = communicators.map(|one| one.carriers.as_str()).collect();
            self.levels = carriers.iter().find_map(|carriers| levels_in(carriers));
            if self.levels.is_none() {
                bail!("no datagrams carried it ({})", carriers.join("; "));
            }
        }
        if let Some(passed) = report.map(|report| report.passed_through).filter(|it| *it > 0) {
            bail!("{passed} operations were left to the MPI");
        }
        self.measured.take(Library::Ours, outcome).map_err(anyhow::Error::msg)?;
        let wrong: u64 = self.measured.rows(cases).iter().map(|row| row.wrong).sum();
        if wrong > 0 {
            bail!("{wrong} elements of results are wrong: please tell the project");
        }
        Ok(())
    }

    /// Its rows of the table.
    pub(super) fn measurements(&self, cases: &[Case], shape: Shape) -> Vec<Measurement> {
        let kind = |collective: Collective| CollectiveKind::from_name(collective.name());
        let rows = self.measured.rows(cases).into_iter();
        let measurement = |row: tributary_measuring::Row| Measurement {
            collective: kind(row.case.collective).expect("both know the collectives of tune"),
            hosts: shape.hosts,
            ranks: shape.ranks,
            len_bytes: row.size_bytes,
            method: self.method,
            carrier: self.carrier,
            algorithm: self.algorithm,
            leaders: self.leaders,
            sub_partitions: 1,
            time_us: row.times.median,
            quartiles_us: Some([row.times.q1, row.times.q3]),
        };
        rows.map(measurement).collect()
    }

    pub(super) fn is_of(&self, row: &Measurement) -> bool {
        (self.method, self.carrier, self.algorithm, self.leaders)
            == (row.method, row.carrier, row.algorithm, row.leaders)
    }

    /// How its operations went, if that is known.
    pub(super) fn way(&self) -> Option<Way> {
        match (self.method, self.carrier) {
            (Method::Tree, _) => Some(Way::Tree),
            (Method::Direct, MessageCarrier::Datagrams) => self.levels.map(Way::Groups),
            (Method::Direct, MessageCarrier::Links) => self.algorithm.algorithm().map(Way::Links),
        }
    }
}

/// For people.
pub(super) fn name(
    method: Method,
    carrier: MessageCarrier,
    algorithm: AlgorithmChoice,
    leaders: u32,
) -> String {
    let leaders = if leaders > 1 { format!(", {leaders} leaders") } else { String::new() };
    match (method, carrier) {
        (Method::Tree, _) => "tree".to_owned(),
        (Method::Direct, MessageCarrier::Datagrams) => "replicated".to_owned(),
        (Method::Direct, MessageCarrier::Links) => format!("direct, {}{leaders}", algorithm.name()),
    }
}

/// The levels of replicated groups in a report's words about carriers.
fn levels_in(carriers: &str) -> Option<Radices> {
    let (_, levels) = carriers.split_once("datagrams, mixed_radix:")?;
    let radices: Result<Vec<u32>, _> = levels.split(['x', ',']).map(str::parse).collect();
    Radices::new(&radices.ok()?)
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
                "replicated",
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
        let groups = MeasuredPath { carrier: MessageCarrier::Datagrams, ..MeasuredPath::direct() };
        assert_eq!(MeasuredPath::direct().cases(&all), all);
        assert_eq!(ring.cases(&all), all[..2]);
        assert_eq!(groups.cases(&all), [all[0], all[3]]);
    }

    #[test]
    fn levels_are_read_from_what_the_library_reports() {
        let levels = Radices::new(&[4, 2]);
        let algorithm = tributary_algorithms::Algorithm::MixedRadix { radices: levels.unwrap() };
        assert_eq!(levels_in(&format!("links and datagrams, {algorithm}")), levels);
        assert_eq!(levels_in("links; h1: datagrams of other hosts do not come here"), None);
        assert_eq!(levels_in("udp"), None);
    }
}
