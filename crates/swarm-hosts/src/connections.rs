//! Connections, the descriptors that hold them, and workers that are forked with copies of both.
//!
//! What is sent over a connection arrives once, in order, and late by a random time. The kernel ends it when the last copy
//! of one end's descriptor is closed.

use std::collections::VecDeque;

use tributary_transport::Marks;

use super::{Frame, Item, System};
use crate::violation::Violation;

/// Words of a process's table of marks: more descriptors than any has.
const MARK_WORDS: usize = 4;
/// How long a forked worker lives.
const WORKER_NS: u64 = 10_000_000_000;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndId {
    connection: u32,
    side: u8,
}

impl EndId {
    pub(super) fn other(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
}

/// The process that reads at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Rank(u32),
    Node,
}

struct End {
    owner: Owner,
    /// Its owner's descriptor, until that is closed, and copies in workers.
    holders: u32,
    is_closed: bool,
    /// What is on its way here, and when the last of it arrives.
    coming: VecDeque<Frame>,
    last_at: u64,
    inbox: VecDeque<Frame>,
}

#[derive(Default)]
pub(super) struct Connections {
    ends: Vec<[End; 2]>,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    /// The program's own.
    Own,
    End(EndId),
    /// Of a communicator.
    Listener(u32),
}

/// A process's descriptors.
pub(super) struct Files {
    open: Vec<Option<File>>,
    marks: Marks<MARK_WORDS>,
}

/// A forked worker: what it holds of its parent's.
pub(super) struct Worker {
    parent: u32,
    pub(super) holds: Vec<File>,
}

impl Worker {
    /// Whether it was forked by this rank and lives.
    pub(super) fn is_of(&self, rank: u32) -> bool {
        self.parent == rank
    }
}

impl Files {
    pub(super) fn new(own: usize) -> Self {
        Self { open: vec![Some(File::Own); own], marks: Marks::new() }
    }

    /// Opens a file, with the lowest number that is free, as the kernel does.
    fn open(&mut self, file: File) {
        let free = self.open.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[number] = Some(file);
        if file != File::Own {
            self.marks.mark(number as i32);
        }
    }

    fn close(&mut self, file: File) -> bool {
        let Some(number) = self.open.iter().rposition(|open| *open == Some(file)) else {
            return false;
        };
        self.marks.unmark(number as i32);
        self.open[number] = None;
        true
    }

    fn has(&self, file: File) -> bool {
        self.open.contains(&Some(file))
    }

    /// What a child has after its first act; none if it gave up a file of the program.
    fn inherited(&self) -> Option<Vec<File>> {
        let marks = Marks::<MARK_WORDS>::new();
        let numbers = 0..self.open.len() as i32;
        numbers.filter(|it| self.marks.is_marked(*it)).for_each(|number| marks.mark(number));
        let mut copies = self.open.clone();
        let mut has_all = true;
        marks.take(|number| has_all &= copies[number as usize].take() != Some(File::Own));
        has_all.then(|| copies.into_iter().flatten().collect())
    }
}

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
            Owner::Node => self.node_reads(to),
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
        let Some(holds) = self.processes[rank as usize].files.inherited() else {
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
