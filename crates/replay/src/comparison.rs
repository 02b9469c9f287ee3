//! One program in several designs, and the tables that tell them apart.

use std::collections::BTreeSet;

use tributary_charts::{Cell, Table};
use tributary_sim::preset::Preset;
use tributary_sim::system::SystemPlan;
use tributary_workload::Workload;

use crate::run::{Between, Class, Outcome, ReplayError, is_in_tree, run};

/// A design, and how the program does in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// What it is called.
    pub name: String,
    /// How the program does.
    pub outcome: Outcome,
}

/// A program by hosts alone and, if the system has aggregation nodes, in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Ranks of the program.
    pub ranks: u32,
    /// Hosts alone first.
    pub designs: Vec<Design>,
}

impl Comparison {
    /// Runs every design, with the same computing.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn new(
        preset: &Preset,
        plan: &SystemPlan,
        workload: &Workload,
        seed: u64,
    ) -> Result<Self, ReplayError> {
        let go = |between: &Between| run(preset, plan, workload, between, seed);
        let mut designs =
            vec![Design { name: "hosts alone".into(), outcome: go(&Between::Hosts)? }];
        if let Some(nodes) = &preset.aggregation {
            // An aggregation node on a host has no multicast in the switch.
            let multicast = !nodes.on_hosts;
            let outcome = go(&Between::Tree { multicast, only: None })?;
            let only = faster(&designs[0].outcome, &outcome);
            let is_whole =
                outcome.classes.keys().all(|class| !is_in_tree(class.kind) || only.contains(class));
            designs.push(Design { name: "tree".into(), outcome });
            if !is_whole {
                let outcome = go(&Between::Tree { multicast, only: Some(only) })?;
                designs.push(Design { name: "tree where it is faster".into(), outcome });
            }
        }
        Ok(Self { ranks: workload.ranks(), designs })
    }

    /// The design in which the program ends first.
    ///
    /// # Panics
    /// Never: hosts alone are always there.
    #[must_use]
    pub fn best(&self) -> &Design {
        let all = self.designs.iter();
        all.min_by(|one, other| one.outcome.total_us.total_cmp(&other.outcome.total_us))
            .expect("hosts alone are a design")
    }

    /// How often faster the program is in a design than by hosts alone.
    #[must_use]
    pub fn gain(&self, design: &Design) -> f64 {
        self.designs[0].outcome.total_us / design.outcome.total_us
    }

    /// A row for each design. Times of computing and of collectives are means over ranks.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&[
            "design",
            "total_ms",
            "compute_ms",
            "collectives_ms",
            "collectives_percent",
            "times_hosts_alone",
            "trees",
            "trees_refused",
        ]);
        for design in &self.designs {
            let outcome = &design.outcome;
            let mean_ms = |us: f64| us / f64::from(self.ranks.max(1)) / 1e3;
            let (compute, collectives) =
                (mean_ms(outcome.compute_us), mean_ms(outcome.collectives_us));
            let share = 100.0 * collectives / (compute + collectives).max(f64::MIN_POSITIVE);
            table.add(vec![
                Cell::Text(design.name.clone()),
                Cell::Number(outcome.total_us / 1e3, 4),
                Cell::Number(compute, 4),
                Cell::Number(collectives, 4),
                Cell::Number(share, 2),
                Cell::Number(self.gain(design), 3),
                Cell::Whole(outcome.trees.into()),
                Cell::Whole(outcome.refused.into()),
            ]);
        }
        table
    }

    /// A row for each collective and length: in each design the mean over ranks and operations, in which ranks
    /// wait for the last to come, and the mean over operations of the shortest time of a rank, in which that
    /// last rank waits for no other.
    #[must_use]
    pub fn classes(&self) -> Table {
        let mut table = Table::new(&[
            "operation",
            "bytes",
            "operations",
            "design",
            "mean_us",
            "shortest_us",
            "shortest_q1_us",
            "shortest_q3_us",
        ]);
        for class in self.designs[0].outcome.classes.keys() {
            for design in &self.designs {
                if let Some(row) = row(class, design) {
                    table.add(row);
                }
            }
        }
        table
    }
}

fn row(class: &Class, design: &Design) -> Option<Vec<Cell>> {
    let times = design.outcome.classes.get(class)?;
    let each = |sum_us: f64| Cell::Number(sum_us / times.operations.max(1) as f64, 3);
    let quartiles = times.quartiles()?;
    Some(vec![
        Cell::Text(class.kind.name().to_owned()),
        Cell::Whole(class.bytes),
        Cell::Whole(times.operations),
        Cell::Text(design.name.clone()),
        each(times.mean_us),
        each(times.shortest_us),
        Cell::Number(quartiles.q1, 3),
        Cell::Number(quartiles.q3, 3),
    ])
}

/// The classes that are faster in the tree.
fn faster(hosts: &Outcome, tree: &Outcome) -> BTreeSet<Class> {
    let is_faster = |class: &&Class| {
        let Some(by_tree) = tree.classes.get(class) else { return false };
        is_in_tree(class.kind) && by_tree.shortest_us < hosts.classes[class].shortest_us
    };
    hosts.classes.keys().filter(is_faster).copied().collect()
}
