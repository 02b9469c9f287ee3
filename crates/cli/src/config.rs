//! `tributary config`: the knob table, and the properties of the machine that set the layout.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use tributary_af_xdp::ask_service;
use tributary_client::knobs::{self, KnobValue};
use tributary_client::{Adapter, Moderation, Settings, adapters, misspelt, network_of};
use tributary_shm_collectives::EXCHANGE_RANKS_MAX;
use tributary_shm_collectives::processor::{Cache, Processor};

use tributary_views::tables;

use crate::flags::ConfigFlags;
use crate::{explain, usage};

/// How long an adapter may keep a packet to itself before that counts: hosts on a network of adapters are some 5 to 10 us apart.
const MODERATION_US_MAX: u32 = 10;

/// Prints every knob and the machine, then fails if a knob has a value that is not allowed; or explains
/// which path an operation takes.
pub(crate) fn config(flags: ConfigFlags) -> anyhow::Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    if let Some(typed) = &flags.explain {
        let settings = Settings::from_environment(environment).map_err(usage::from_setting)?;
        explain::print(typed, &flags, settings)?;
        return Ok(ExitCode::SUCCESS);
    }
    let values = knobs::values(environment);
    let with_moderation = |adapter: Adapter| {
        let moderation = adapter.moderation();
        (adapter, moderation)
    };
    let adapters: Vec<_> = adapters()?.into_iter().map(with_moderation).collect();
    let rings = knobs::RINGS.value(environment).value;
    let problem = problem_of_rings(&rings);
    let mut out = io::stdout().lock();
    if flags.json {
        for value in &values {
            writeln!(out, "{}", line(value))?;
        }
        let rings = json!({ "service": rings, "problem": problem });
        writeln!(out, "{}", machine_line(Processor::own(), &adapters, &rings))?;
    } else {
        writeln!(out, "{}", table(&values))?;
        writeln!(out, "{}", machine(Processor::own()))?;
        for (adapter, moderation) in &adapters {
            writeln!(out, "{}", describe(adapter, *moderation))?;
        }
        match problem {
            None => writeln!(out, "rings: the service at {rings} gives them to jobs")?,
            Some(problem) => writeln!(out, "rings: not without privileges: {problem}")?,
        }
    }
    for (adapter, moderation) in &adapters {
        if let Some(warning) = warning_of(adapter, *moderation) {
            writeln!(io::stderr(), "tributary: {warning}")?;
        }
    }
    for wrong in misspelt(std::env::vars_os().map(|(name, _)| name)) {
        writeln!(io::stderr(), "tributary: {wrong}")?;
    }
    Settings::from_environment(environment).map_err(usage::from_setting)?;
    Ok(ExitCode::SUCCESS)
}

/// Why jobs without privileges have no rings on this host; none if they have.
fn problem_of_rings(service: &str) -> Option<String> {
    match service.parse() {
        Ok(service) => ask_service(&service).err().map(|problem| problem.to_string()),
        Err(problem) => Some(format!("{service}: {problem}")),
    }
}

fn line(KnobValue { knob, value, origin }: &KnobValue) -> serde_json::Value {
    json!({
        "name": knob.name,
        "value": value,
        "unit": knob.unit,
        "source": origin.to_string(),
        "default": knob.default,
        "allowed": knob.allowed,
        "help": knob.help,
    })
}

fn machine_line(
    processor: &Processor,
    adapters: &[(Adapter, Option<Moderation>)],
    rings: &serde_json::Value,
) -> serde_json::Value {
    let adapter = |(it, moderation): &(Adapter, Option<Moderation>)| {
        json!({
            "name": it.name,
            "driver": it.driver,
            "speed_mbps": it.speed_mbps,
            "mtu_bytes": it.mtu_bytes,
            "network": network_of(it).name(),
            "moderation_us": moderation.map(|it| it.receive_us),
            "moderation_is_adaptive": moderation.map(|it| it.is_adaptive),
        })
    };
    let cache = |cache: &Cache| {
        json!({
            "level": cache.level,
            "size_bytes": cache.size_bytes,
            "line_bytes": cache.line_bytes,
            "sharers": cache.sharers,
        })
    };
    json!({
        "machine": {
            "cpus": processor.cpus,
            "cores": processor.cores,
            "sockets": processor.sockets,
            "caches": processor.caches.iter().map(cache).collect::<Vec<_>>(),
        },
        "layout": {
            "spinning_ranks_max": processor.cpus,
            "exchange_ranks_max": EXCHANGE_RANKS_MAX,
            "scratch_bytes": processor.scratch_bytes(),
        },
        "adapters": adapters.iter().map(adapter).collect::<Vec<_>>(),
        "rings": rings,
    })
}

fn describe(adapter: &Adapter, moderation: Option<Moderation>) -> String {
    let Adapter { name, driver, speed_mbps, mtu_bytes } = adapter;
    let driver = driver.as_deref().unwrap_or("no driver of its own");
    let speed = speed_mbps.map_or("no speed stated".to_owned(), |it| format!("{it} Mb/s"));
    let mtu = mtu_bytes.map_or(String::new(), |it| format!(", packets of up to {it} B"));
    let waits = match moderation {
        None => "does not say how long it keeps packets to itself".to_owned(),
        Some(Moderation { receive_us: 0, .. }) => "interrupts for each packet".to_owned(),
        Some(Moderation { receive_us, is_adaptive }) => {
            let adapts = if is_adaptive { ", by what comes" } else { "" };
            format!("interrupts {receive_us} us after a packet at most{adapts}")
        }
    };
    let kind = network_of(adapter).name();
    format!("adapter {name}: {driver}, {speed}{mtu}; taken for {kind}; {waits}")
}

/// What costs short messages more than their network does.
fn warning_of(adapter: &Adapter, moderation: Option<Moderation>) -> Option<String> {
    let Moderation { receive_us, is_adaptive } = moderation?;
    let name = &adapter.name;
    let adapts = if is_adaptive { "adaptive-rx off " } else { "" };
    (receive_us > MODERATION_US_MAX).then(|| {
        format!(
            "{name} may keep a packet for {receive_us} us before it interrupts, which each step of a short collective waits for. \
             `ethtool -C {name} {adapts}rx-usecs 0` ends that, for more interrupts under load (docs/tuning.md, Adapters)"
        )
    })
}

fn machine(processor: &Processor) -> String {
    let Processor { cpus, cores, sockets, caches, .. } = processor;
    let caches: Vec<String> = caches
        .iter()
        .map(|Cache { level, size_bytes, line_bytes, sharers }| {
            let size_kib = size_bytes / 1024;
            format!("level {level}: {size_kib} KiB in lines of {line_bytes} B for {sharers} CPUs")
        })
        .collect();
    let caches = if caches.is_empty() { "not told".to_owned() } else { caches.join("; ") };
    format!(
        "machine (from the kernel): {cpus} CPUs granted, on {cores} cores of {sockets} sockets\n\
         caches: {caches}\n\
         layout inside a host: up to {cpus} ranks spin, more of them yield; a short allreduce of up to \
         {EXCHANGE_RANKS_MAX} ranks is one exchange, of more ranks a gather and a release; long vectors \
         are reduced in {} KiB of scratch memory, a quarter of the second-level cache",
        processor.scratch_bytes() / 1024
    )
}

fn table(values: &[KnobValue]) -> String {
    let mut table = tables::plain(["name", "value", "unit", "source", "help"]);
    for KnobValue { knob, value, origin } in values {
        let shown = if value.is_empty() { "-" } else { value };
        table.add_row([knob.name, shown, knob.unit, &origin.to_string(), knob.help]);
    }
    tables::text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter() -> Adapter {
        Adapter {
            name: "eth0".to_owned(),
            driver: Some("mlx5_core".to_owned()),
            speed_mbps: Some(25_000),
            mtu_bytes: Some(1500),
        }
    }

    #[test]
    fn an_adapter_that_keeps_packets_long_is_warned_of() {
        let moderated = |receive_us, is_adaptive| Some(Moderation { receive_us, is_adaptive });
        assert_eq!(
            describe(&adapter(), moderated(8, true)),
            "adapter eth0: mlx5_core, 25000 Mb/s, packets of up to 1500 B; taken for ethernet-25; \
             interrupts 8 us after a packet at most, by what comes"
        );
        for quiet in [None, moderated(0, false), moderated(MODERATION_US_MAX, true)] {
            assert_eq!(warning_of(&adapter(), quiet), None);
        }
        let warning = warning_of(&adapter(), moderated(50, true)).expect("50 us are warned of");
        assert!(warning.contains("`ethtool -C eth0 adaptive-rx off rx-usecs 0`"), "{warning}");
        let fixed = warning_of(&adapter(), moderated(20, false)).expect("20 us are warned of");
        assert!(fixed.contains("`ethtool -C eth0 rx-usecs 0`"), "{fixed}");
    }
}
