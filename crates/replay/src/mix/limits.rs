//! What values a mix may hold: the one place that compares them with bounds.

use core::fmt::Display;
use core::ops::RangeInclusive;

use tributary_algorithms::CollectiveKind;
use tributary_sim::input::Refused;
use tributary_workload::Distribution;

use super::file::{Mix, MixCommunicator, MixPhase, WORLD};
use crate::run::{BYTES_MAX, GATHERED_MAX};

/// Ranks of a program.
const RANKS: RangeInclusive<u32> = 1..=1 << 20;
/// Ranks on one host.
const PER_HOST: RangeInclusive<u32> = 1..=4096;
/// Passes through the phases, and calls in a row.
const TIMES: RangeInclusive<u32> = 1..=1_000_000;
/// A rank's contribution.
const BYTES: RangeInclusive<u64> = 0..=BYTES_MAX;
/// Times in microseconds: up to 1,000 s.
const TIME_US: RangeInclusive<f64> = 0.0..=1e9;
/// Standard deviations of logarithms and of factors.
const DEVIATION: RangeInclusive<f64> = 0.0..=3.0;
/// Most communicators and phases in a file.
const ENTRIES_MAX: usize = 1024;
/// Most parts into which communicators divide the world.
const PARTS_MAX: u32 = 65_536;

pub(super) fn check(mix: &Mix) -> Result<(), Refused> {
    within("ranks", mix.ranks, &RANKS)?;
    within("processes_per_host", mix.processes_per_host, &PER_HOST)?;
    within("iterations", mix.iterations, &TIMES)?;
    distribution("skew", &mix.skew)?;
    within("imbalance", mix.imbalance, &DEVIATION)?;
    entries("communicator", mix.communicator.len(), 0)?;
    entries("phase", mix.phase.len(), 1)?;
    for (index, own) in mix.communicator.iter().enumerate() {
        communicator(&format!("communicator[{index}]"), own, &mix.communicator[..index])?;
    }
    for (index, own) in mix.phase.iter().enumerate() {
        phase(&format!("phase[{index}]"), own, &mix.communicator)?;
    }
    check_size(mix, mix.ranks, mix.processes_per_host)
}

/// What depends on the number of ranks.
pub(super) fn check_size(mix: &Mix, ranks: u32, per_host: u32) -> Result<(), Refused> {
    within("ranks", ranks, &RANKS)?;
    within("processes", per_host, &PER_HOST)?;
    for (index, own) in mix.communicator.iter().enumerate() {
        let parts = own.blocks_of.map_or(own.stride.unwrap_or(1), |size| ranks.div_ceil(size));
        if parts > PARTS_MAX {
            let key = format!("communicator[{index}]");
            return Err(Refused::new(key, format!("{parts} parts"), format!("up to {PARTS_MAX}")));
        }
    }
    for (index, own) in mix.phase.iter().enumerate() {
        let key = |name: &str| format!("phase[{index}].{name}");
        let members = smallest(mix, &own.communicator, ranks);
        if own.root >= members {
            let allowed = format!("0 to {}, the ranks of `{}`", members - 1, own.communicator);
            return Err(Refused::new(key("root"), own.root, allowed));
        }
        let most = GATHERED_MAX / u64::from(ranks);
        if own.operation == CollectiveKind::Allgather && own.bytes > most {
            let allowed = format!("up to {most} for {ranks} ranks, 2 GiB in all");
            return Err(Refused::new(key("bytes"), own.bytes, allowed));
        }
    }
    Ok(())
}

/// How many ranks the smallest part of a communicator has.
fn smallest(mix: &Mix, name: &str, ranks: u32) -> u32 {
    let Some(own) = mix.communicator.iter().find(|own| own.name == name) else { return ranks };
    match (own.blocks_of, own.stride) {
        (Some(size), _) if ranks.is_multiple_of(size) => size,
        (Some(size), _) => ranks % size,
        (None, stride) => (ranks / stride.unwrap_or(1)).max(1),
    }
}

fn communicator(
    key: &str,
    own: &MixCommunicator,
    before: &[MixCommunicator],
) -> Result<(), Refused> {
    if own.name == WORLD || before.iter().any(|known| known.name == own.name) {
        let name = format!("`{}`", own.name);
        return Err(Refused::new(format!("{key}.name"), name, "a name that no other has"));
    }
    match (own.blocks_of, own.stride) {
        (Some(size), None) => within(&format!("{key}.blocks_of"), size, &RANKS),
        (None, Some(stride)) => within(&format!("{key}.stride"), stride, &RANKS),
        (both, _) => {
            let value = if both.is_some() { "divided twice" } else { "not divided" };
            Err(Refused::new(key, value, "either `blocks_of` or `stride`"))
        }
    }
}

fn phase(key: &str, own: &MixPhase, communicators: &[MixCommunicator]) -> Result<(), Refused> {
    distribution(&format!("{key}.compute"), &own.compute)?;
    within(&format!("{key}.bytes"), own.bytes, &BYTES)?;
    within(&format!("{key}.repeat"), own.repeat, &TIMES)?;
    within(&format!("{key}.every"), own.every, &TIMES)?;
    let mut names = core::iter::once(WORLD).chain(communicators.iter().map(|own| &own.name[..]));
    if names.clone().any(|name| name == own.communicator) {
        return Ok(());
    }
    let first = names.next().map(|name| format!("`{name}`")).unwrap_or_default();
    let allowed = names.fold(first, |all, name| format!("{all}, `{name}`"));
    Err(Refused::new(format!("{key}.communicator"), format!("`{}`", own.communicator), allowed))
}

fn distribution(key: &str, distribution: &Distribution) -> Result<(), Refused> {
    for (name, value) in distribution.numbers() {
        let range = if name == "sigma" { &DEVIATION } else { &TIME_US };
        within(&format!("{key}.{name}"), value, range)?;
    }
    if let Distribution::Uniform { min_us, max_us } = distribution
        && min_us > max_us
    {
        let allowed = format!("`{key}.min_us`, {min_us}, or more");
        return Err(Refused::new(format!("{key}.max_us"), max_us, allowed));
    }
    Ok(())
}

fn entries(key: &str, count: usize, min: usize) -> Result<(), Refused> {
    let value = format!("a list of {count}");
    if (min..=ENTRIES_MAX).contains(&count) {
        return Ok(());
    }
    Err(Refused::new(key, value, format!("{min} to {ENTRIES_MAX} entries")))
}

fn within<T: PartialOrd + Display + Copy>(
    key: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<(), Refused> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Refused::new(key, value, format!("{} to {}", range.start(), range.end())))
}
