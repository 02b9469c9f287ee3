//! What a planner does first: presets with own values, topology files, the same case by two commands; and
//! files with mistakes in them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Write as _;

use tributary_charts::{Cell, Table};
use tributary_figures::plan::{self, Question};
use tributary_figures::{Effort, Progress};
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{FullHosts, InterHost};
use tributary_sim::preset::{self, Preset};
use tributary_sim::system::{SystemError, SystemPlan};

/// Leaves of `hosts` hosts below spines, as a topology file.
fn leaf_spine(spines: u32, leaves: u32, hosts: u32) -> String {
    let mut text = String::new();
    for spine in 0..spines {
        writeln!(text, "[[switch]]\nname = \"spine{spine}\"").unwrap();
    }
    for leaf in 0..leaves {
        let first = leaf * hosts;
        writeln!(text, "[[switch]]\nname = \"leaf{leaf}\"\nlinks = [\"spine[0-{}]\"]", spines - 1)
            .unwrap();
        writeln!(text, "hosts = [\"host[{first}-{}]\"]", first + hosts - 1).unwrap();
    }
    text
}

fn read(text: &str) -> Preset {
    preset::read(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn alone(hosts: u32, inter_host: InterHost) -> FullHosts {
    FullHosts { groups: 1, hosts, processes: 1, leaders: 1, inter_host, seed: None }
}

const IN_TREE: InterHost = InterHost::Tree { multicast: false };

fn us(preset: &Preset, plan: &SystemPlan, setting: &FullHosts, bytes: usize) -> f64 {
    let mut run = setting.set_up_as(preset, plan.clone()).unwrap();
    run.allreduce(bytes, 2).unwrap().avg()
}

fn shaped(preset: &str, shape: &str) -> Preset {
    read(&format!("name = \"mine\"\nbase = \"{preset}\"\n[fabric]\n{shape}\n"))
}

#[test]
fn no_preset_has_aggregation_through_its_base_that_its_base_left_out() {
    for name in ["edr", "omni-path", "many-core"] {
        assert!(preset::read_shipped(name).unwrap().aggregation.is_none(), "{name}");
    }
    let without =
        |base| format!("name = \"mine\"\nbase = \"{base}\"\nwithout = [\"aggregation\"]\n");
    for base in ["ethernet-25", "ethernet-100", "edr-leaders", "hdr-streaming"] {
        assert!(preset::read_shipped(base).unwrap().aggregation.is_some(), "{base}");
        assert!(read(&without(base)).aggregation.is_none(), "{base}");
    }
    let error = preset::read(&without("edr")).unwrap_err().to_string();
    assert!(error.contains("`aggregation`") && error.contains("tables of `edr`"), "{error}");
    let error = preset::read("base = \"edr\"\nwithout = [\"agregation\"]\n").unwrap_err();
    assert!(error.to_string().contains("`agregation`"), "{error}");
}

#[test]
fn a_cluster_without_aggregation_nodes_is_offered_no_tree() {
    let question = Question {
        hosts: Some(8),
        groups: 1,
        processes: 1,
        sizes_bytes: vec![8],
        effort: Effort { seed: 1, operations: 2 },
    };
    for name in ["edr", "omni-path", "many-core"] {
        let preset = preset::read_shipped(name).unwrap();
        let table = plan::compare(&preset, &question, &Progress::default()).unwrap();
        let is_tree = |row: &Vec<Cell>| row[2].to_string().starts_with("tree");
        assert!(!table.rows.is_empty() && !table.rows.iter().any(is_tree), "{name}: {table:?}");
    }
}

#[test]
fn a_topology_file_can_be_used_with_every_preset() {
    let text = leaf_spine(4, 4, 6);
    for name in preset::names() {
        let preset = preset::read_shipped(name).unwrap();
        let plan = SystemPlan::describe_fabric(&preset, "leaf-spine.toml", &text).unwrap();
        let nodes = preset.aggregation.as_ref();
        // Four leaves and one spine of four have an aggregation node that serves somebody.
        let software_nodes = if nodes.is_some_and(|nodes| nodes.on_hosts) { 5 } else { 0 };
        let hosts = plan.compute_hosts();
        assert_eq!(hosts.len(), 24 - software_nodes, "{name}");
        let all = hosts.len() as u32;
        let by_hosts = us(&preset, &plan, &alone(all, InterHost::HostBased), 8);
        assert!(by_hosts > 0.0, "{name}");
        if nodes.is_some() {
            assert!(us(&preset, &plan, &alone(all, IN_TREE), 8) > 0.0, "{name}");
            let setting = FullHosts { processes: 4, leaders: 2, ..alone(all, IN_TREE) };
            assert!(us(&preset, &plan, &setting, 4096) > 0.0, "{name}");
        }
    }
}

#[test]
fn software_nodes_have_hosts_to_themselves() {
    let preset = preset::read_shipped("ethernet-25").unwrap();
    let plan = |text: &str| SystemPlan::describe_fabric(&preset, "file", text);
    // The last host of each leaf; the root takes the last but one of the last leaf.
    let compute = plan(&leaf_spine(2, 2, 4)).unwrap().compute_hosts();
    assert_eq!(compute, [0, 1, 2, 4, 5].map(Vertex));
    // An aggregator that the file attaches to a host stays there, and is the only one.
    let named = leaf_spine(2, 2, 4) + "[[aggregation-node]]\nname = \"an\"\nat = \"host1\"\n";
    let compute = plan(&named).unwrap().compute_hosts();
    assert_eq!(compute, [0, 2, 3, 4, 5, 6, 7].map(Vertex));
    let error = plan(&leaf_spine(1, 2, 1)).unwrap_err();
    assert!(matches!(error, SystemError::NoHostForNode { .. }), "{error}");
    let in_switches = preset::read_shipped("edr-sharp").unwrap();
    let error = SystemPlan::describe_fabric(&in_switches, "file", &named).unwrap_err();
    assert!(matches!(error, SystemError::NodeOnHost { .. }), "{error}");
}

/// The same fabric as a fat tree and from a file: times differ by nothing, whatever the levels.
#[test]
fn a_fabric_from_a_file_is_as_fast_as_the_regular_one() {
    let three_levels = {
        let mut text = String::new();
        for top in 0..4 {
            writeln!(text, "[[switch]]\nname = \"top{top}\"").unwrap();
        }
        for block in 0..4 {
            for middle in 0..2 {
                writeln!(text, "[[switch]]\nname = \"middle{block}-{middle}\"").unwrap();
                // Middle switch i of each block is linked to the same two of the tops.
                writeln!(text, "links = [\"top{middle}\", \"top{}\"]", middle + 2).unwrap();
            }
            for leaf in 0..4 {
                let first = 16 * block + 4 * leaf;
                writeln!(text, "[[switch]]\nname = \"leaf{block}-{leaf}\"").unwrap();
                writeln!(text, "links = [\"middle{block}-[0-1]\"]").unwrap();
                writeln!(text, "hosts = [\"host[{first}-{}]\"]", first + 3).unwrap();
            }
        }
        text
    };
    let cases = [
        ("down = [8, 8]\nup = [1, 8]", leaf_spine(8, 8, 8)),
        ("down = [8, 8]\nup = [1, 2]", leaf_spine(2, 8, 8)),
        ("down = [4, 4, 4]\nup = [1, 2, 2]", three_levels),
    ];
    for (shape, text) in cases {
        let preset = shaped("edr-sharp", &format!("kind = \"fat-tree\"\n{shape}"));
        let regular = SystemPlan::new(&preset).unwrap();
        let described = SystemPlan::describe_fabric(&preset, "file", &text).unwrap();
        for bytes in [8, 4096, 1 << 20] {
            let of = |plan| us(&preset, plan, &alone(64, InterHost::HostBased), bytes);
            let (regular, described) = (of(&regular), of(&described));
            let share = described / regular;
            assert!((share - 1.0).abs() < 1e-9, "{shape}, {bytes} B: {described} of {regular} us");
        }
        let of = |plan| us(&preset, plan, &alone(64, IN_TREE), 4096);
        let share = of(&described) / of(&regular);
        assert!((share - 1.0).abs() < 1e-9, "{shape}: tree {share}");
    }
}

fn number(cell: &Cell) -> f64 {
    let Cell::Number(value, _) = cell else { panic!("{cell:?} is no number") };
    *value
}

/// The mean of the rows that begin like this.
fn mean(table: &Table, begins: &[Cell]) -> f64 {
    let row = table.rows.iter().find(|row| row.starts_with(begins));
    number(&row.unwrap_or_else(|| panic!("no row {begins:?}"))[2])
}

#[test]
fn two_commands_agree_on_the_same_case() {
    let effort = Effort { seed: 1, operations: 5 };
    let figure = tributary_figures::make("table1", &effort, &Progress::default()).unwrap();
    let sizes_bytes = vec![8, 512, 4096];
    let question = Question {
        hosts: Some(127),
        groups: 1,
        processes: 1,
        sizes_bytes: sizes_bytes.clone(),
        effort,
    };
    let preset = preset::read_shipped("edr-sharp").unwrap();
    let run = plan::run(&preset, &question, &Progress::default()).unwrap();
    let modes = [
        ("host", "hosts alone, 1 leader a host"),
        ("sharp", "tree, 1 channel a host, multicast and reliable results"),
        ("sharp-rc", "tree, 1 channel a host, reliable results"),
    ];
    for (mode, design) in modes {
        for &size in &sizes_bytes {
            let of = |table: &Table, name: &str| {
                mean(table, &[Cell::Text(name.to_owned()), Cell::Whole(size as u64)])
            };
            let (figure, run) = (of(&figure.table, mode), of(&run, design));
            assert!((figure - run).abs() < 1e-9, "{mode} {size} B: {figure} and {run} us");
        }
    }
}

/// Each file is refused with one line that names the key, its value and what is allowed.
#[test]
fn mistakes_are_named() {
    let shape = |kind: &str, rest: &str| format!("[fabric]\nkind = \"{kind}\"\n{rest}\n");
    let constant = |key: &str, value: &str, unit: &str| {
        let (table, key) = key.split_once('.').unwrap();
        let value = format!("{{ value = {value}, unit = \"{unit}\", source = \"a test\" }}");
        format!("[{table}]\n{key} = {value}\n")
    };
    let cases = [
        ("routing = \"valiant\"\n".to_owned(), "`routing` is `valiant`;"),
        ("routing = \"hashed\"\n".to_owned(), "`routing`: unknown variant `hashed`,"),
        ("[software]\nlibrary = \"mine\"\n".to_owned(), "`software.library`: unknown variant"),
        (shape("fat-tree", "down = [16, 8]\nup = [1]"), "`fabric.up` is [1];"),
        (shape("fat-tree", "down = [16]\nup = [2]"), "`fabric.up` is [2];"),
        (shape("fat-tree", "down = [16, 0]\nup = [1, 4]"), "`fabric.down` is [16, 0];"),
        (shape("fat-tree", "down = []\nup = []"), "`fabric.down` is [];"),
        (
            shape("fat-tree", "down = [65536, 65536, 65536]\nup = [1, 65536, 65536]"),
            "`fabric.down` is [65536, 65536, 65536] with `fabric.up` [1, 65536, 65536];",
        ),
        (shape("fat-tree", "down = [-1]\nup = [1]"), "`fabric`: invalid value: integer `-1`"),
        (shape("fat-tree", "down = [4]"), "`fabric`: missing field `up`"),
        (shape("ring", "down = [4]"), "`fabric.kind`: unknown variant `ring`"),
        (shape("torus", "sizes = []"), "`fabric.sizes` is [];"),
        (shape("torus", "sizes = [4, 0]"), "`fabric.sizes` is [4, 0];"),
        (shape("torus", "sizes = [99999, 99999]"), "`fabric.sizes` is [99999, 99999];"),
        (shape("dragonfly", "groups = 0\nrouters = 4\nhosts = 2"), "`fabric.groups` is 0;"),
        (shape("dragonfly", "groups = 4\nrouters = 0\nhosts = 2"), "`fabric.routers` is 0;"),
        (shape("dragonfly", "groups = 4\nrouters = 4\nhosts = 0"), "`fabric.hosts` is 0;"),
        (
            shape("dragonfly", "groups = 4000000000\nrouters = 4000000000\nhosts = 4000000000"),
            "`fabric` is 4000000000 groups of 4000000000 routers of 4000000000 hosts;",
        ),
        (constant("aggregation.osos", "0", "1"), "`aggregation.osos` is 0; allowed: a whole"),
        (constant("aggregation.osos", "1.5", "1"), "`aggregation.osos` is 1.5; allowed: a whole"),
        (constant("aggregation.radix", "1", "1"), "`aggregation.radix` is 1;"),
        (constant("aggregation.payload_max", "0", "B"), "`aggregation.payload_max` is 0 B;"),
        (constant("tree.osos", "0", "1"), "`tree.osos` is 0; allowed: a whole number, 1 to"),
        (constant("packet.mtu", "0", "B"), "`packet.mtu` is 0 B; allowed: a whole number, 64 to"),
        (constant("access.rate", "0", "Gb/s"), "`access.rate` is 0 Gb/s; allowed: 0.001 to"),
        (constant("trunk.rate", "-3", "Gb/s"), "`trunk.rate` is -3 Gb/s;"),
        (constant("adapter.bus", "0", "Gb/s"), "`adapter.bus` is 0 Gb/s;"),
        (constant("adapter.packet_rate", "0", "1/us"), "`adapter.packet_rate` is 0 1/us;"),
        (constant("switch.port_rate", "inf", "1/us"), "`switch.port_rate` is inf 1/us;"),
        (constant("switch.port_to_port", "nan", "ns"), "`switch.port_to_port` is NaN ns;"),
        (constant("memory.sockets", "0", "1"), "`memory.sockets` is 0;"),
        (constant("software.radix", "1", "1"), "`software.radix` is 1;"),
        (constant("noise.jitter", "2", "share"), "`noise.jitter` is 2; allowed: 0 to 1"),
        (constant("noise.skew", "1e30", "ns"), "`noise.skew` is 10"),
        (constant("access.rate", "100", "Gbit"), "`access.rate`: the unit is `Gbit`, it must be"),
        (constant("access.rate", "\"x\"", "Gb/s"), "`access.rate.value`: invalid type: string"),
        (constant("switch.port_to_prot", "3", "ns"), "`switch.port_to_prot`: unknown field"),
        ("[switch\n".to_owned(), "line 3: "),
    ];
    for (text, begins) in cases {
        let error = preset::read(&format!("name = \"mine\"\nbase = \"edr-sharp\"\n{text}"));
        let line = error.expect_err(&text).to_string();
        assert!(line.starts_with(begins), "{text}\n{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

#[test]
fn mistakes_in_topology_files_are_named() {
    let preset = preset::read_shipped("ethernet-25").unwrap();
    let cases = [
        ("[[switch]]\nname = \"a\"\n", "topology `file`: the file has no host;"),
        (
            "[[switch]]\nname = \"a\"\nhosts = [\"h1\"]\n[[switch]]\nname = \"b\"\nhosts = [\"h2\"]\n",
            "topology `file`: no path leads from `a` to `b`;",
        ),
        ("SwitchName=s Nodes=n[1-\n", "topology `file`: line 1: "),
        ("", "topology `file`: line 1: the file describes no switch;"),
    ];
    for (text, begins) in cases {
        let line = SystemPlan::describe_fabric(&preset, "file", text).unwrap_err().to_string();
        assert!(line.starts_with(begins) && !line.contains('\n'), "{text}\n{line}");
    }
}

#[test]
fn questions_that_a_system_cannot_answer_are_refused() {
    let preset = preset::read_shipped("ethernet-25").unwrap();
    let plan = SystemPlan::new(&preset).unwrap();
    let ask = |hosts, processes, size| {
        let effort = Effort { seed: 1, operations: 1 };
        let question = Question { hosts, groups: 1, processes, sizes_bytes: vec![8, size], effort };
        question.hosts_of(&preset, &plan).map_err(|error| error.to_string())
    };
    assert_eq!(ask(None, 1, 8), Ok(15));
    assert_eq!(ask(Some(15), 28, 8), Ok(15));
    let hosts = "; allowed: 1 to 15, the hosts of `ethernet-25` without an aggregation node";
    assert_eq!(ask(Some(16), 1, 8), Err(format!("`hosts` is 16{hosts}")));
    assert_eq!(ask(Some(0), 1, 8), Err(format!("`hosts` is 0{hosts}")));
    let cores = "; allowed: 1 to 28, the cores of a host of `ethernet-25`";
    assert_eq!(ask(None, 29, 8), Err(format!("`processes` is 29{cores}")));
    assert_eq!(ask(None, 0, 8), Err(format!("`processes` is 0{cores}")));
    let sizes = |size: usize| Err(format!("`sizes` is {size}; allowed: 1 to 1073741824 bytes"));
    assert_eq!(ask(None, 1, 0), sizes(0));
    assert_eq!(ask(None, 1, usize::MAX), sizes(usize::MAX));
}
