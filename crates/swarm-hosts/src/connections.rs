//! Connections and their ends, the descriptors that hold them, and workers with copies of both.

use std::collections::VecDeque;

use tributary_inheritance::Marks;

use crate::frame::Frame;

/// Words of a process's table of marks: more descriptors than any has.
const MARK_WORDS: usize = 4;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndId {
    pub(super) connection: u32,
    pub(super) side: u8,
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
    Aggregator,
}

pub(super) struct End {
    pub(super) owner: Owner,
    /// Its owner's descriptor, until that is closed, and copies in workers.
    pub(super) holders: u32,
    pub(super) is_closed: bool,
    /// What is on its way here, and when the last of it arrives.
    pub(super) coming: VecDeque<Frame>,
    pub(super) last_at: u64,
    pub(super) inbox: VecDeque<Frame>,
}

#[derive(Default)]
pub(super) struct Connections {
    pub(super) ends: Vec<[End; 2]>,
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
    pub(super) open: Vec<Option<File>>,
    pub(super) marks: Marks<MARK_WORDS>,
}

/// A forked worker: what it holds of its parent's.
pub(super) struct Worker {
    pub(super) parent: u32,
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
    pub(super) fn open(&mut self, file: File) {
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

    pub(super) fn close(&mut self, file: File) -> bool {
        let Some(number) = self.open.iter().rposition(|open| *open == Some(file)) else {
            return false;
        };
        self.marks.unmark(number as i32);
        self.open[number] = None;
        true
    }

    pub(super) fn has(&self, file: File) -> bool {
        self.open.contains(&Some(file))
    }

    /// What a child has after its first act; none if it gave up a file of the program.
    pub(super) fn inherit(&self) -> Option<Vec<File>> {
        let marks = Marks::<MARK_WORDS>::new();
        let numbers = 0..self.open.len() as i32;
        numbers.filter(|it| self.marks.is_marked(*it)).for_each(|number| marks.mark(number));
        let mut copies = self.open.clone();
        let mut has_all = true;
        marks.take(|number| has_all &= copies[number as usize].take() != Some(File::Own));
        has_all.then(|| copies.into_iter().flatten().collect())
    }
}
