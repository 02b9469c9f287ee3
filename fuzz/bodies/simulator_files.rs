//! Files that a user gives to the simulator: whatever they hold, they are read or refused with one line,
//! and what is read can be simulated.
//!
//! Random text is hardly ever a file, so the input chooses: how to spoil a good file, or which lines to
//! put together.

#[path = "choices.rs"]
mod choices;

use choices::Choices;
use tributary_figures::Effort;
use tributary_figures::plan::Question;
use tributary_sim::measure::{FullHosts, InterHost};
use tributary_sim::preset::{self, Preset};
use tributary_sim::system::{SystemError, SystemPlan};
use tributary_sim::world::SetupError;

/// Most vertices of a fabric that is also simulated.
const SIMULATED_MAX: usize = 40;

/// How far an input got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) presets: u64,
    pub(crate) topologies: u64,
    pub(crate) simulated: u64,
    pub(crate) refused: u64,
}

impl core::ops::Add for Reached {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            presets: self.presets + other.presets,
            topologies: self.topologies + other.topologies,
            simulated: self.simulated + other.simulated,
            refused: self.refused + other.refused,
        }
    }
}

/// Reads one file of one kind, and simulates what it describes if that is small.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut choices = Choices { bytes };
    let mut reached = Reached::default();
    match choices.below(4) {
        0 => preset_file(&spoiled_preset(&mut choices), &mut choices, &mut reached),
        1 => preset_file(&preset_of_lines(&mut choices), &mut choices, &mut reached),
        2 => topology_file(&topology_of_lines(&mut choices), &mut choices, &mut reached),
        _ => {
            let text = String::from_utf8_lossy(choices.bytes).into_owned();
            preset_file(&text, &mut choices, &mut reached);
            topology_file(&text, &mut choices, &mut reached);
        }
    }
    reached
}

fn preset_file(text: &str, choices: &mut Choices<'_>, reached: &mut Reached) {
    match preset::read(text) {
        // A topology file would be read from the machine that runs this.
        Ok(preset) if matches!(preset.fabric, preset::FabricShape::Topology { .. }) => {}
        Ok(preset) => {
            reached.presets += 1;
            if hosts(&preset) > SIMULATED_MAX as u64 {
                return;
            }
            match SystemPlan::new(&preset) {
                Ok(plan) => simulate(&preset, plan, choices, reached),
                Err(error) => refused(&error.to_string(), reached),
            }
        }
        Err(error) => refused(&error.to_string(), reached),
    }
}

/// An upper bound of what a regular fabric has, which the reader has bounded.
fn hosts(preset: &Preset) -> u64 {
    let product = |list: &[u32]| list.iter().map(|&number| u64::from(number)).product::<u64>();
    match &preset.fabric {
        preset::FabricShape::FatTree { down, up } => product(down).max(product(up)),
        preset::FabricShape::Dragonfly { groups, routers, hosts } => {
            product(&[*groups, *routers, *hosts]).max(product(&[*groups, *routers, *routers]))
        }
        preset::FabricShape::Torus { sizes } => product(sizes),
        preset::FabricShape::Topology { .. } => u64::MAX,
    }
}

fn topology_file(text: &str, choices: &mut Choices<'_>, reached: &mut Reached) {
    // Presets are read once: this is about the fabric.
    thread_local! {
        static PRESETS: Vec<Preset> = ["edr-sharp", "ethernet-25", "edr"]
            .map(|name| preset::read_shipped(name).expect("it comes with the program"))
            .into();
    }
    PRESETS.with(|presets| {
        let preset = &presets[choices.below(presets.len())];
        match SystemPlan::describe_fabric(preset, "file", text) {
            Ok(plan) => {
                reached.topologies += 1;
                if plan.vertices() <= SIMULATED_MAX {
                    simulate(preset, plan, choices, reached);
                }
            }
            Err(error) => refused(&error.to_string(), reached),
        }
    });
}

/// Every message is one line.
fn refused(message: &str, reached: &mut Reached) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
    reached.refused += 1;
}

fn simulate(preset: &Preset, plan: SystemPlan, choices: &mut Choices<'_>, reached: &mut Reached) {
    let question = Question {
        hosts: None,
        groups: 1,
        processes: [1, 2, 5][choices.below(3)],
        sizes_bytes: vec![[1, 8, 300, 5000, 20_000][choices.below(5)]],
        effort: Effort { seed: 1, operations: 1 },
    };
    let hosts = match question.hosts_of(preset, &plan) {
        Ok(hosts) => hosts,
        Err(error) => return refused(&error.to_string(), reached),
    };
    let inter_host = match choices.below(4) {
        0 => InterHost::HostBased,
        1 => InterHost::Dpml,
        _ if preset.aggregation.is_none() => InterHost::HostBased,
        which => InterHost::Tree { multicast: which == 2 },
    };
    let leaders = 1 + choices.below(question.processes as usize) as u32;
    let setting = FullHosts {
        groups: 1,
        hosts,
        processes: question.processes,
        leaders,
        inter_host,
        seed: Some(1),
    };
    match setting.set_up_as(preset, plan) {
        Ok(mut run) => {
            let bytes = question.sizes_bytes[0];
            let samples = run.allreduce(bytes, 1).expect("what is set up also runs");
            assert!(samples.avg().is_finite() && samples.avg() >= 0.0, "{samples:?}");
            reached.simulated += 1;
        }
        Err(SystemError::Setup(error @ (SetupError::Refused(_) | SetupError::Node { .. }))) => {
            refused(&error.to_string(), reached);
        }
        Err(error) => panic!("set-up fails on a system that was planned: {error}"),
    }
}

/// Numbers at and beyond the edges of what is allowed.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "7",
    "8",
    "16",
    "63",
    "64",
    "65",
    "255",
    "256",
    "4096",
    "65535",
    "65536",
    "1048576",
    "1048577",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-1",
    "0.5",
    "1e-3",
    "1e3",
    "1e7",
    "1e12",
    "1e300",
    "nan",
    "inf",
    "-0.0",
];

/// Numbers that most constants may have.
const USUAL_NUMBERS: &[&str] = &["1", "2", "3.5", "64", "100", "256", "1000"];

/// Numbers that small fabrics have.
const SMALL_RADICES: &[&str] = &["1", "2", "3", "4"];

/// The same, and others.
const RADICES: &[&str] = &["1", "2", "3", "4", "5", "8", "0", "65536", "-1", "4294967295"];

const KEYS: &[&str] = &[
    "access.rate:Gb/s",
    "access.propagation:ns",
    "trunk.rate:Gb/s",
    "trunk.propagation:ns",
    "packet.overhead:B",
    "packet.mtu:B",
    "switch.port_to_port:ns",
    "switch.port_rate:1/us",
    "adapter.transmit:ns",
    "adapter.receive:ns",
    "adapter.packet_rate:1/us",
    "adapter.bus:Gb/s",
    "adapter.inline_max:B",
    "adapter.inline_byte:ns/B",
    "adapter.fetch:ns",
    "adapter.eager_max:B",
    "memory.sockets:1",
    "memory.cores:1",
    "memory.line_near:ns",
    "memory.line_far:ns",
    "memory.line_gap_near:ns",
    "memory.line_gap_far:ns",
    "memory.copy:ns/B",
    "memory.reduce:ns/B",
    "memory.piece:ns",
    "memory.cache:B",
    "memory.socket_rate:Gb/s",
    "memory.intersocket_rate:Gb/s",
    "software.call:ns",
    "software.send:ns",
    "software.receive:ns",
    "software.eager_byte:ns/B",
    "software.reduce_byte:ns/B",
    "software.register:ns",
    "software.cold_byte:ns/B",
    "software.radix:1",
    "software.long_min:B",
    "tree.call:ns",
    "tree.request:ns",
    "tree.result:ns",
    "tree.repeat:ns",
    "tree.segment_byte:ns/B",
    "tree.notice_max:B",
    "tree.line_read:ns",
    "aggregation.latency:ns",
    "aggregation.packet:ns",
    "aggregation.byte:ns/B",
    "aggregation.reply:ns",
    "aggregation.reply_byte:ns/B",
    "tree.osos:1",
    "aggregation.osos:1",
    "aggregation.radix:1",
    "aggregation.payload_max:B",
    "noise.jitter:share",
    "noise.skew:ns",
    "noise.detour_rate:1/s",
    "noise.detour:ns",
];

/// A file over a shipped preset, of valid and less valid lines.
fn preset_of_lines(choices: &mut Choices<'_>) -> String {
    let bases: Vec<&str> = preset::names().chain(["nowhere"]).collect();
    let mut text = format!("name = \"mine\"\nbase = \"{}\"\n", choices.of(&bases));
    if choices.below(4) == 0 {
        let entry = choices.of(&["aggregation", "agregation", "fabric", "name", ""]);
        text += &format!("without = [\"{entry}\"]\n");
    }
    // Most files have a small fabric, so that they are simulated.
    text += &fabric(choices);
    for _ in 0..choices.below(4) {
        let (key, unit) = choices.of(KEYS).split_once(':').expect("a key and its unit");
        let (table, key) = key.split_once('.').expect("a table and its key");
        let numbers = if choices.below(4) > 0 { USUAL_NUMBERS } else { NUMBERS };
        let value = choices.of(numbers);
        text += &format!(
            "[{table}]\n{key} = {{ value = {value}, unit = \"{unit}\", source = \"x\" }}\n"
        );
    }
    text
}

fn fabric(choices: &mut Choices<'_>) -> String {
    let list = |choices: &mut Choices<'_>, first: Option<&str>| {
        let count = 1 + choices.below(3);
        let mut all: Vec<&str> = (0..count).map(|_| radix(choices)).collect();
        if let Some(first) = first.filter(|_| choices.below(8) > 0) {
            all[0] = first;
        }
        all.join(", ")
    };
    let lines = match choices.below(4) {
        0 => return String::new(),
        1 => {
            let (down, up) = (list(choices, None), list(choices, Some("1")));
            format!("kind = \"fat-tree\"\ndown = [{down}]\nup = [{up}]")
        }
        2 => format!("kind = \"torus\"\nsizes = [{}]", list(choices, None)),
        _ => {
            let [groups, routers, hosts] = [(); 3].map(|()| radix(choices));
            format!("kind = \"dragonfly\"\ngroups = {groups}\nrouters = {routers}\nhosts = {hosts}")
        }
    };
    format!("[fabric]\n{lines}\n")
}

fn radix(choices: &mut Choices<'_>) -> &'static str {
    let radices = if choices.below(6) > 0 { SMALL_RADICES } else { RADICES };
    choices.of(radices)
}

/// A shipped preset with pieces cut out, repeated or replaced.
fn spoiled_preset(choices: &mut Choices<'_>) -> String {
    let names: Vec<&str> = preset::names().collect();
    let name = choices.of(&names);
    choices.spoil(preset::text(name).expect("it comes with the program"), NUMBERS)
}

const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "s0",
    "s1",
    "s2",
    "s3",
    "s[0-3]",
    "h1",
    "h2",
    "h[1-4]",
    "h[5-8]",
    "h[01-12]",
    "h[1-2][1-3]",
    "a,b",
    "h[1-",
    "h[3-1]",
    "",
    "h[0-70000]",
    "h[0-9999999]",
];

/// A topology file of one of the three formats: a fabric that hangs together, with some names replaced.
fn topology_of_lines(choices: &mut Choices<'_>) -> String {
    let format = choices.below(3);
    let switches = 1 + choices.below(6);
    let mut text = if format == 2 { "vendid=0x2c9\n".to_owned() } else { String::new() };
    for index in 0..switches {
        let own = name(choices, format!("s{index}"));
        let other = choices.below(switches);
        let other = name(choices, format!("s{other}"));
        let hosts = choices.below(4);
        let host = |number: usize| format!("h{}", 4 * index + number);
        let list = name(choices, (0..hosts.max(1)).map(host).collect::<Vec<_>>().join(","));
        let is_linked = own != other && choices.below(8) > 0;
        match format {
            0 => {
                text += &format!("[[switch]]\nname = \"{own}\"\nhosts = [\"{list}\"]\n");
                if is_linked {
                    text += &format!("links = [\"{other}\"]\n");
                }
            }
            1 if is_linked => text += &format!("SwitchName={own} Nodes={list} Switches={other}\n"),
            1 => text += &format!("SwitchName={own} \\\n  Nodes={list} LinkSpeed=9\n"),
            _ => {
                text += &format!("Switch\t8 \"S-{own}\"\t# \"{own}\" base port 0\n");
                for (port, host) in list.split(',').enumerate() {
                    text += &format!("[{port}]\t\"H-{host}\"[1](2)\t# \"{host} HCA-1\" lid 5\n");
                }
                if is_linked {
                    text += &format!("[9]\t\"S-{other}\"[9]\t# \"{other}\"\n");
                }
                for host in list.split(',') {
                    text += &format!("Ca\t1 \"H-{host}\"\t# \"{host} HCA-1\"\n");
                    text += &format!("[1](3)\t\"S-{own}\"[1]\t# \"{own}\"\n");
                }
            }
        }
    }
    if format == 0 && choices.below(3) == 0 {
        let (own, at) = (name(choices, "an".into()), name(choices, "s0".into()));
        text += &format!("[[aggregation-node]]\nname = \"{own}\"\nat = \"{at}\"\n");
    }
    text
}

/// `usual`, or now and then another name.
fn name(choices: &mut Choices<'_>, usual: String) -> String {
    if choices.below(12) > 0 { usual } else { choices.of(NAMES).to_owned() }
}
