//! The machine's cores and caches, as the kernel tells them, and what is chosen by them.
//!
//! Owns the reading of `/sys/devices/system/cpu`
//! (Documentation/ABI/testing/sysfs-devices-system-cpu). What the kernel does not tell is taken to
//! be as on current server cores, and said to be so.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Second-level cache where the kernel tells of none.
const SECOND_LEVEL_USUAL_BYTES: usize = 1024 * 1024;

/// The processors that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Logical processors that this process may run on.
    pub cpus: u32,
    /// Cores that they belong to: fewer, where cores run several threads.
    pub cores: u32,
    /// Sockets that these are on.
    pub sockets: u32,
    /// The one socket that they are on, as the kernel numbers it; none if they are on several.
    pub socket: Option<u32>,
    /// Data and unified caches of the first of them, nearest first.
    pub caches: Vec<Cache>,
}

/// One cache, as a processor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// Its size.
    pub size_bytes: usize,
    /// Length of a line.
    pub line_bytes: usize,
    /// Processors that share it.
    pub sharers: u32,
}

impl Processor {
    /// What this process was granted; read once.
    #[must_use]
    pub fn own() -> &'static Self {
        static OWN: OnceLock<Processor> = OnceLock::new();
        OWN.get_or_init(|| {
            let cpus = list_granted_cores();
            Self::read(Path::new("/sys/devices/system/cpu"), &cpus)
        })
    }

    /// Reads what a folder laid out like `/sys/devices/system/cpu` tells of `cpus`.
    fn read(folder: &Path, cpus: &[usize]) -> Self {
        let number = |cpu: usize, name: &str| -> u32 {
            let text = fs::read_to_string(folder.join(format!("cpu{cpu}/topology/{name}")));
            text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        let cores: BTreeSet<_> = cpus
            .iter()
            .map(|&cpu| (number(cpu, "physical_package_id"), core_of(folder, cpu)))
            .collect();
        let sockets: BTreeSet<_> = cores.iter().map(|(socket, _)| *socket).collect();
        let mut caches: Vec<_> = cpus.first().map_or(Vec::new(), |&cpu| {
            (0..8)
                .filter_map(|index| cache(&folder.join(format!("cpu{cpu}/cache/index{index}"))))
                .collect()
        });
        caches.sort_by_key(|cache: &Cache| cache.level);
        Self {
            cpus: cpus.len() as u32,
            cores: cores.len() as u32,
            sockets: sockets.len() as u32,
            socket: sockets.first().copied().filter(|_| sockets.len() == 1),
            caches,
        }
    }

    /// The part of the second-level cache that belongs to one processor.
    #[must_use]
    pub fn second_level_bytes(&self) -> usize {
        let second = self.caches.iter().find(|cache| cache.level == 2);
        second.map_or(SECOND_LEVEL_USUAL_BYTES, |cache| {
            cache.size_bytes / cache.sharers.max(1) as usize
        })
    }

    /// Scratch memory of a rank that reduces a long vector directly: a quarter of its second-level
    /// cache, for its own vector and the kernel's copies go through the same cache.
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        (self.second_level_bytes() / 4).clamp(128 * 1024, 1024 * 1024)
    }
}

/// The first processor of the core that `cpu` belongs to stands for the core: core numbers repeat
/// from die to die.
fn core_of(folder: &Path, cpu: usize) -> usize {
    let siblings =
        fs::read_to_string(folder.join(format!("cpu{cpu}/topology/thread_siblings_list")));
    let first = siblings.ok().and_then(|text| list(&text).first().copied());
    first.unwrap_or(cpu)
}

fn cache(folder: &Path) -> Option<Cache> {
    let text = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
    if text("type")? == "Instruction" {
        return None;
    }
    let size = text("size")?;
    Some(Cache {
        level: text("level")?.parse().ok()?,
        size_bytes: size.strip_suffix('K')?.parse::<usize>().ok()? * 1024,
        line_bytes: text("coherency_line_size")?.parse().ok()?,
        sharers: list(&text("shared_cpu_list")?).len() as u32,
    })
}

/// The numbers of a list such as `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Processors in this process's affinity mask.
fn list_granted_cores() -> Vec<usize> {
    let Ok(mask) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of one processor.
    fn plant(folder: &Path, cpu: usize, socket: u32, siblings: &str, shared: &str) {
        let put = |name: &str, text: &str| {
            let path = folder.join(format!("cpu{cpu}/{name}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        put("topology/physical_package_id", &socket.to_string());
        put("topology/thread_siblings_list", siblings);
        for (index, (kind, level, size, sharers)) in [
            ("Data", "1", "48K", siblings),
            ("Instruction", "1", "32K", siblings),
            ("Unified", "2", "2048K", siblings),
            ("Unified", "3", "36864K", shared),
        ]
        .into_iter()
        .enumerate()
        {
            put(&format!("cache/index{index}/type"), kind);
            put(&format!("cache/index{index}/level"), level);
            put(&format!("cache/index{index}/size"), size);
            put(&format!("cache/index{index}/coherency_line_size"), "64");
            put(&format!("cache/index{index}/shared_cpu_list"), sharers);
        }
    }

    #[test]
    fn two_sockets_of_two_cores_of_two_threads_are_counted() {
        let folder = std::env::temp_dir().join(format!("tributary-cpus-{}", std::process::id()));
        for cpu in 0..8 {
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            let shared = if socket == 0 { "0-1,4-5" } else { "2-3,6-7" };
            plant(&folder, cpu, socket as u32, &format!("{core},{}", core + 4), shared);
        }
        let all = Processor::read(&folder, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((all.cpus, all.cores, all.sockets), (8, 4, 2));
        let levels: Vec<_> = all.caches.iter().map(|cache| (cache.level, cache.sharers)).collect();
        assert_eq!(levels, [(1, 2), (2, 2), (3, 4)]);
        assert_eq!(all.second_level_bytes(), 1024 * 1024);
        assert_eq!(all.scratch_bytes(), 256 * 1024);
        let some = Processor::read(&folder, &[0, 4]);
        assert_eq!((some.cpus, some.cores, some.sockets), (2, 1, 1));
        assert_eq!((all.socket, some.socket), (None, Some(0)));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_kernel_that_tells_nothing_leaves_what_is_usual() {
        let silent = Processor::read(Path::new("/nonexistent"), &[3, 5]);
        assert_eq!((silent.cpus, silent.cores, silent.sockets), (2, 2, 1));
        assert_eq!(silent.second_level_bytes(), SECOND_LEVEL_USUAL_BYTES);
    }
}
