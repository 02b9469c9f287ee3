//! The cost of collectives in a host's shared memory, before and after the network.
//!
//! Each process has its own clock. A leader reads the other processes' cache lines one after the other:
//! first those of its own socket, then the results of the other sockets, which take longer.

use std::ops::Range;

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
    /// `processes` processes, distributed over the sockets in blocks.
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

    /// Cuts the host into `parts` neighbouring blocks of processes. The first process of a block is its
    /// leader.
    #[must_use]
    pub fn blocks(&self, parts: u32) -> Vec<Range<u32>> {
        let parts = parts.clamp(1, self.processes);
        let start = |part: u32| (part * self.processes).div_ceil(parts);
        (0..parts).map(|part| start(part)..start(part + 1)).collect()
    }

    /// When the leader of a block has reduced the vectors of all its processes, `bytes` bytes each.
    /// `starts` has the start of each process of the host. The first process on each socket gathers from
    /// its own socket, then the leader gathers from these. A process alone in its block sends from its own
    /// vector, which no other process needs to see.
    #[must_use]
    pub fn gather(&self, block: &Range<u32>, starts: &[Picos], bytes: usize) -> Picos {
        if block.len() == 1 {
            return starts[block.start as usize];
        }
        let Memory { line_near, line_gap_near, line_far, line_gap_far, .. } = &self.memory;
        let copied = self.memory.copy.span_of(bytes);
        let reduced = self.memory.reduce.span_of(bytes);
        let mut gathered = self.runs(block).map(|run| {
            let mut others = starts[run.start as usize..run.end as usize].iter();
            let own = *others.next().expect("a run has a process") + copied;
            others.fold(own, |at, &start| {
                at.max(start + copied + line_near.span()) + line_gap_near.span() + reduced
            })
        });
        let own = gathered.next().expect("a block has a process");
        gathered
            .fold(own, |at, other| at.max(other + line_far.span()) + line_gap_far.span() + reduced)
    }

    /// When a process of a block has the result that its leader has at `from`. A process on the leader's
    /// socket reads it directly, others through the first process on their own socket.
    #[must_use]
    pub fn spread(&self, block: &Range<u32>, process: u32, from: Picos, bytes: usize) -> Picos {
        let Memory { line_near, line_gap_near, line_far, line_gap_far, .. } = &self.memory;
        let copied = self.memory.copy.span_of(bytes);
        let mut at = from;
        let is_own = |run: &Range<u32>| run.contains(&process);
        let run = self.runs(block).find(is_own).expect("a process of the block");
        if run.start != block.start {
            at = at + line_far.span() + line_gap_far.span() + copied;
        }
        if run.start != process {
            at = at + line_near.span() + line_gap_near.span() + copied;
        }
        at
    }

    /// The parts of a block that lie on one socket each.
    fn runs(&self, block: &Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut rest = block.clone();
        std::iter::from_fn(move || {
            let first = (!rest.is_empty()).then_some(rest.start)?;
            let is_near = |&process: &u32| self.socket_of(process) == self.socket_of(first);
            let run = first..first + rest.clone().take_while(is_near).count() as u32;
            rest.start = run.end;
            Some(run)
        })
    }

    /// Time for every process to copy a vector of `bytes` bytes, in one piece for each of `leaders`
    /// leaders: the time of one core, or that of the shared memory bandwidth if it is longer.
    #[must_use]
    pub fn copy_all(&self, bytes: usize, leaders: u32) -> Picos {
        let pieces = Picos(self.memory.piece.span().0 * u64::from(leaders));
        let core = self.memory.copy.span_of(bytes);
        // Each byte is read once and written once.
        pieces + core.max(self.all_memory(2 * bytes * self.processes as usize))
    }

    /// Time for `leaders` leaders to reduce all processes' vectors of `bytes` bytes, a part each: the
    /// longest of the times of one core, of the memory and of the link between sockets.
    #[must_use]
    pub fn reduce_all(&self, bytes: usize, leaders: u32) -> Picos {
        let part = bytes.div_ceil(leaders as usize);
        let others = self.processes - 1;
        let near = self.processes.div_ceil(self.sockets) - 1;
        let flags = self.memory.line_gap_near.span().0 * u64::from(near)
            + self.memory.line_gap_far.span().0 * u64::from(others - near);
        let core = self.memory.reduce.span_of(part * others as usize);
        let moved = bytes * self.processes as usize;
        // Bytes that a leader reads from another socket. All links between sockets work at once.
        let far = moved / self.sockets as usize * (self.sockets as usize - 1);
        let link = self.memory.intersocket_rate.span_of(far / self.sockets as usize);
        Picos(flags) + core.max(self.all_memory(moved)).max(link)
    }

    /// Time for all sockets to move `bytes` bytes together; 0 if the caches hold them, because each core
    /// then works in its own share of the cache.
    fn all_memory(&self, bytes: usize) -> Picos {
        let of_socket = bytes / self.sockets as usize;
        if of_socket <= self.memory.cache.bytes() {
            return Picos::ZERO;
        }
        self.memory.socket_rate.span_of(of_socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn blocks_tile_the_host_and_follow_its_sockets() {
        let preset = preset::read_shipped("edr-sharp").unwrap();
        let host = HostMemory::new(&preset.memory, 28);
        assert_eq!((host.blocks(1).len(), host.blocks(1)[0].clone()), (1, 0..28));
        assert_eq!(host.blocks(2), [0..14, 14..28]);
        assert!(host.blocks(2)[1].clone().all(|process| host.socket_of(process) == 1));
        let blocks = HostMemory::new(&preset.memory, 5).blocks(3);
        assert_eq!(blocks.iter().map(|block| block.len()).sum::<usize>(), 5);
    }

    #[test]
    fn a_socket_gathers_faster_than_a_host_and_no_result_precedes_the_last_process() {
        let preset = preset::read_shipped("edr-sharp").unwrap();
        let host = HostMemory::new(&preset.memory, 28);
        let mut starts = vec![Picos::ZERO; 28];
        assert!(host.gather(&(0..14), &starts, 8) < host.gather(&(0..28), &starts, 8));
        starts[5] = Picos(9_000_000);
        assert!(host.gather(&(0..14), &starts, 8) > starts[5]);
        assert!(host.spread(&(0..28), 5, starts[5], 8) < host.spread(&(0..28), 20, starts[5], 8));
        assert_eq!(host.spread(&(14..28), 14, starts[5], 8), starts[5]);
        assert_eq!(host.gather(&(5..6), &starts, 4096), starts[5], "nobody else reads its vector");
        let one = host.reduce_all(1 << 19, 1);
        assert!(host.reduce_all(1 << 19, 4) < one);
    }
}
