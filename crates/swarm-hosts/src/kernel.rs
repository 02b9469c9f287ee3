//! What the kernels of the hosts do with connections, with the descriptors that hold them, and with workers that are
//! forked with copies of both.
//!
//! What is sent over a connection arrives once, in order, and late by a random time. The kernel ends it when the last
//! copy of one end's descriptor is closed.

use std::collections::VecDeque;

use crate::connections::{End, EndId, File, Owner, Worker};
use crate::frame::Frame;
use crate::system::{Item, System};
use crate::violation::Violation;

/// How long a forked worker lives.
const WORKER_NS: u64 = 10_000_000_000;

impl System<'_> {
    /// A connection between two that know of it.
    pub(super) fn connect(&mut self, owners: [Owner; 2]) -> EndId {
        let end = self.dial(owners);
        self.pick_up(end.other());
        end
    }

    /// A connection that the first owner makes, and the kernel of the second takes for it.
    pub(super) fn dial(&mut self, owners: [Owner; 2]) -> EndId {
        let connection = self.connections.ends.len() as u32;
        self.connections.ends.push(owners.map(|owner| End {
            owner,
            holders: 1,
            is_closed: false,
            coming: VecDeque::new(),
            last_at: 0,
            inbox: VecDeque::new(),
        }));
        let end = EndId { connection, side: 0 };
        self.pick_up(end);
        end
    }

    /// An owner gets the descriptor of its end.
    pub(super) fn pick_up(&mut self, end: EndId) {
        if let Owner::Rank(rank) = self.owner(end) {
            self.processes[rank as usize].files.open(File::End(end));
        }
    }

    /// Nobody listens at this end.
    pub(super) fn refuse(&mut self, end: EndId) {
        self.drop_copy(File::End(end));
    }

    fn end(&mut self, end: EndId) -> &mut End {
        &mut self.connections.ends[end.connection as usize][usize::from(end.side)]
    }

    pub(super) fn owner(&self, end: EndId) -> Owner {
        self.connections.ends[end.connection as usize][usize::from(end.side)].owner
    }

    /// Sends from this end.
    pub(super) fn send(&mut self, from: EndId, frame: Frame) {
        if self.end(from).is_closed {
            return;
        }
        self.put_frame(from.other(), frame);
    }

    fn put_frame(&mut self, to: EndId, frame: Frame) {
        let at = self.now + self.delay_ns();
        let end = self.end(to);
        end.last_at = end.last_at.max(at);
        end.coming.push_back(frame);
        let at = end.last_at;
        self.put(at, Item::Arrive { to });
    }

    pub(super) fn arrive(&mut self, to: EndId) {
        let end = self.end(to);
        let frame = end.coming.pop_front().expect("each frame has its arrival");
        self.trace.note_number(self.now ^ u64::from(to.connection) << 40);
        let end = self.end(to);
        if end.is_closed {
            return;
        }
        end.inbox.push_back(frame);
        match end.owner {
            Owner::Rank(rank) => self.poll(rank, false),
            Owner::Aggregator => self.read_at_aggregator(to),
        }
    }

    pub(super) fn next_frame(&mut self, end: EndId) -> Option<Frame> {
        // An end stays ended.
        let inbox = &mut self.end(end).inbox;
        if inbox.front() == Some(&Frame::Fin) { Some(Frame::Fin) } else { inbox.pop_front() }
    }

    pub(super) fn front(&mut self, end: EndId) -> Option<Frame> {
        self.end(end).inbox.front().copied()
    }

    /// All that has come at an end, unread.
    pub(super) fn unread(&mut self, end: EndId) -> Vec<Frame> {
        self.end(end).inbox.iter().copied().collect()
    }

    /// An owner closes its end.
    pub(super) fn close(&mut self, end: EndId) {
        match self.owner(end) {
            Owner::Rank(rank) if !self.processes[rank as usize].files.close(File::End(end)) => {}
            _ => self.drop_copy(File::End(end)),
        }
    }

    fn drop_copy(&mut self, file: File) {
        let File::End(end) = file else { return };
        let entry = self.end(end);
        entry.holders -= 1;
        if entry.holders == 0 {
            entry.is_closed = true;
            entry.inbox.clear();
            self.put_frame(end.other(), Frame::Fin);
        }
    }

    pub(super) fn listen(&mut self, rank: u32, communicator: u32) {
        self.processes[rank as usize].files.open(File::Listener(communicator));
    }

    pub(super) fn is_listening(&self, rank: u32, communicator: u32) -> bool {
        let process = &self.processes[rank as usize];
        process.is_alive && process.files.has(File::Listener(communicator))
    }

    /// Whether the kernel of a rank's host refuses a call now.
    pub(super) fn refuses(&self, rank: u32, communicator: u32) -> bool {
        !self.is_listening(rank, communicator) && !self.has_copied_listener(rank, communicator)
    }

    pub(super) fn stop_listening(&mut self, rank: u32, communicator: u32) {
        self.processes[rank as usize].files.close(File::Listener(communicator));
    }

    /// Whether a worker of a rank holds its listener, so that the kernel takes calls that nobody ever looks at.
    fn has_copied_listener(&self, rank: u32, communicator: u32) -> bool {
        let holds = |worker: &Worker| {
            worker.parent == rank && worker.holds.contains(&File::Listener(communicator))
        };
        self.workers.iter().any(holds)
    }

    /// The program opens a file, or closes one.
    pub(super) fn use_file(&mut self, rank: u32, opens: bool) {
        let files = &mut self.processes[rank as usize].files;
        if opens {
            files.open(File::Own);
        } else {
            files.close(File::Own);
        }
    }

    /// A rank forks a worker.
    pub(super) fn fork(&mut self, rank: u32) {
        let Some(holds) = self.processes[rank as usize].files.inherit() else {
            return self.report(Violation::FileLost { rank });
        };
        for file in &holds {
            if let File::End(end) = file {
                self.end(*end).holders += 1;
            }
        }
        let worker = self.workers.len() as u32;
        self.workers.push(Worker { parent: rank, holds });
        let at = self.now + WORKER_NS;
        self.put(at, Item::WorkerEnds { worker });
    }

    pub(super) fn end_worker(&mut self, worker: u32) {
        let holds = std::mem::take(&mut self.workers[worker as usize].holds);
        holds.into_iter().for_each(|file| self.drop_copy(file));
        for (end, rank, communicator) in std::mem::take(&mut self.stranded) {
            self.strand_or_refuse(end, rank, communicator);
        }
    }

    /// A call has come to a process that does not listen any more. Its worker's copy of the listener may.
    pub(super) fn strand_or_refuse(&mut self, end: EndId, rank: u32, communicator: u32) {
        if self.has_copied_listener(rank, communicator) {
            self.stranded.push((end, rank, communicator));
        } else {
            self.refuse(end);
        }
    }

    /// A process ends, and the kernel closes what it had open.
    pub(super) fn close_all(&mut self, rank: u32) {
        let open = std::mem::take(&mut self.processes[rank as usize].files.open);
        open.into_iter().flatten().for_each(|file| self.drop_copy(file));
    }
}
