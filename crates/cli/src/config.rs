//! `tributary config`: the knob table, and the properties of the machine that set the layout.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use tributary_client::knobs::{self, KnobValue};
use tributary_client::{Settings, misspelt};
use tributary_shm_collectives::EXCHANGE_RANKS_MAX;
use tributary_shm_collectives::processor::{Cache, Processor};

use tributary_views::tables;

use crate::flags::ConfigFlags;
use crate::{explain, usage};

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
    let mut out = io::stdout().lock();
    if flags.json {
        for value in &values {
            writeln!(out, "{}", line(value))?;
        }
        writeln!(out, "{}", machine_line(Processor::own()))?;
    } else {
        writeln!(out, "{}", table(&values))?;
        writeln!(out, "{}", machine(Processor::own()))?;
    }
    for wrong in misspelt(std::env::vars_os().map(|(name, _)| name)) {
        writeln!(io::stderr(), "tributary: {wrong}")?;
    }
    Settings::from_environment(environment).map_err(usage::from_setting)?;
    Ok(ExitCode::SUCCESS)
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

fn machine_line(processor: &Processor) -> serde_json::Value {
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
