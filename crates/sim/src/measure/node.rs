//! What happens inside a host: its processes meet in shared memory before and after the network.
//!
//! Each process is followed on its own clock. A leader reads the others' lines one after the other,
//! those that are there first; a line from the other socket takes longer.

use crate::engine::Picos;
use crate::preset::Memory;

/// A host's memory, and how many processes it has.
#[derive(Clone, Debug)]
pub struct HostMemory {
    memory: Memory,
    processes: u32,
    sockets: u32,
}

impl HostMemory {
    /// `processes` processes, dealt out over the sockets in blocks.
    #[must_use]
    pub fn new(memory: &Memory, processes: u32) -> Self {
        let sockets = memory.sockets.count().clamp(1, processes.max(1));
        Self { memory: memory.clone(), processes, sockets }
    }

    /// Processes.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// Which socket a process is on.
    #[must_use]
    pub fn socket_of(&self, process: u32) -> u32 {
        process * self.sockets / self.processes
    }

    /// Cuts the host into `parts` neighbouring blocks of processes, the first of which leads.
    #[must_use]
    pub fn blocks(&self, parts: u32) -> Vec<std::ops::Range<u32>> {
        let parts = parts.clamp(1, self.processes);
        let start = |part: u32| (part * self.processes).div_ceil(parts);
        (0..parts).map(|part| start(part)..start(part + 1)).collect()
    }

    fn line(&self, one: u32, other: u32) -> Picos {
        let is_near = self.socket_of(one) == self.socket_of(other);
        if is_near { self.memory.line_near.span() } else { self.memory.line_far.span() }
    }

    fn gap(&self, one: u32, other: u32) -> Picos {
        let is_near = self.socket_of(one) == self.socket_of(other);
        if is_near { self.memory.line_gap_near.span() } else { self.memory.line_gap_far.span() }
    }

    /// When the first process of a block has reduced `bytes` bytes of all of them; `starts` says
    /// when each process of the host starts.
    #[must_use]
    pub fn gather(&self, block: &std::ops::Range<u32>, starts: &[Picos], bytes: usize) -> Picos {
        let leader = block.start;
        let copied = self.memory.copy.span_of(bytes);
        let reduced = self.memory.reduce.span_of(bytes);
        let mut at = starts[leader as usize] + copied;
        for other in block.start + 1..block.end {
            let seen_at = starts[other as usize] + copied + self.line(leader, other);
            at = at.max(seen_at) + self.gap(leader, other) + reduced;
        }
        at
    }

    /// When a process of a block has the result that its leader has at `from`.
    #[must_use]
    pub fn spread(&self, leader: u32, process: u32, from: Picos, bytes: usize) -> Picos {
        if leader == process {
            return from;
        }
        from + self.line(leader, process)
            + self.gap(leader, process)
            + self.memory.copy.span_of(bytes)
    }

    /// Time for every process to copy a vector of `bytes` bytes, in one piece for each of `leaders`:
    /// what one core needs, or what the memory of all does if that is longer.
    #[must_use]
    pub fn copy_all(&self, bytes: usize, leaders: u32) -> Picos {
        let pieces = Picos(self.memory.line_far.span().0 * u64::from(leaders));
        let core = self.memory.copy.span_of(bytes);
        // Each byte is read once and written once.
        pieces + core.max(self.all_memory(2 * bytes * self.processes as usize))
    }

    /// Time for `leaders` leaders to reduce all processes' vectors of `bytes` bytes, a part each.
    #[must_use]
    pub fn reduce_all(&self, bytes: usize, leaders: u32) -> Picos {
        let part = bytes.div_ceil(leaders as usize);
        let others = self.processes - 1;
        let flags = Picos(self.memory.line_gap_far.span().0 * u64::from(others));
        let core = self.memory.reduce.span_of(part * others as usize);
        let moved = bytes * self.processes as usize;
        let far = (moved / self.sockets as usize) * (self.sockets as usize - 1);
        let link = self.memory.intersocket_rate.span_of(far / self.sockets.max(1) as usize);
        flags + core.max(self.all_memory(moved)).max(link)
    }

    fn all_memory(&self, bytes: usize) -> Picos {
        self.memory.socket_rate.span_of(bytes / self.sockets as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn blocks_tile_the_host_and_follow_its_sockets() {
        let preset = preset::shipped("edr-sharp").unwrap();
        let host = HostMemory::new(&preset.memory, 28);
        assert_eq!((host.blocks(1).len(), host.blocks(1)[0].clone()), (1, 0..28));
        assert_eq!(host.blocks(2), [0..14, 14..28]);
        assert!(host.blocks(2)[1].clone().all(|process| host.socket_of(process) == 1));
        let blocks = HostMemory::new(&preset.memory, 5).blocks(3);
        assert_eq!(blocks.iter().map(|block| block.len()).sum::<usize>(), 5);
    }

    #[test]
    fn a_socket_gathers_faster_than_a_host_and_nobody_is_before_the_last() {
        let preset = preset::shipped("edr-sharp").unwrap();
        let host = HostMemory::new(&preset.memory, 28);
        let mut starts = vec![Picos::ZERO; 28];
        assert!(host.gather(&(0..14), &starts, 8) < host.gather(&(0..28), &starts, 8));
        starts[5] = Picos(9_000_000);
        assert!(host.gather(&(0..14), &starts, 8) > starts[5]);
        let one = host.reduce_all(1 << 19, 1);
        assert!(host.reduce_all(1 << 19, 4) < one);
    }
}
