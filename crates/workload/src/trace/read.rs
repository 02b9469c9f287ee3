//! Reading a trace. What is kept is at most a constant multiple of the text, and of the number of ranks.

use std::collections::HashMap;
use std::sync::Arc;

use tributary_algorithms::CollectiveKind;

use super::{FIRST_LINE, Path, RANKS_MAX, RankTrace, Trace, Traced, TracedCommunicator, members};

/// Most members of all different lists together: a range is short, and what it says is long.
const MEMBERS_MAX: usize = 1 << 24;

/// Why a trace was refused: the file is at fault, in the line named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {found}; allowed: {allowed}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What stands there.
    pub found: String,
    /// What may.
    pub allowed: &'static str,
}

const RANK: &str =
    "`rank R host NAME program_ns N left_out N nonblocking N`, each rank once, R below `ranks`";
const COMMUNICATOR: &str =
    "`communicator NUMBER ORDINAL RANKS`, numbered from 0, of ranks of the trace";
const OPERATION: &str = "`COMMUNICATOR COLLECTIVE ROOT BYTES PATH GAP_NS LENGTH_NS`";

/// Reads a trace.
///
/// # Errors
/// [`TraceError`].
pub fn read(text: &str) -> Result<Trace, TraceError> {
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().unwrap_or_default();
    if first != FIRST_LINE {
        return Err(wrong(0, first, "`tributary-trace 1`, of a program of this version"));
    }
    let (_, second) = lines.next().unwrap_or_default();
    let count = second.strip_prefix("ranks ").and_then(|count| count.parse().ok());
    let Some(count) = count.filter(|count| (1..=RANKS_MAX).contains(count)) else {
        return Err(wrong(1, second, "`ranks N`, 1 to 1048576"));
    };
    let mut reader = Reader {
        trace: Trace { ranks: vec![RankTrace::default(); count as usize] },
        is_there: vec![false; count as usize],
        rank: None,
        now_ns: 0,
        lists: HashMap::new(),
        members: 0,
    };
    for (index, line) in lines {
        reader.line(line).map_err(|allowed| wrong(index, line, allowed))?;
    }
    Ok(reader.trace)
}

fn wrong(index: usize, line: &str, allowed: &'static str) -> TraceError {
    let mut found: String = line.chars().take(60).collect();
    if found.is_empty() {
        found = "nothing".into();
    }
    TraceError { line: index + 1, found: format!("`{}`", found.escape_debug()), allowed }
}

struct Reader<'a> {
    trace: Trace,
    is_there: Vec<bool>,
    /// The rank whose section it is.
    rank: Option<usize>,
    /// When the section's last operation ended: sums of times stay within 64 bits.
    now_ns: u64,
    lists: HashMap<&'a str, Members>,
    /// Members of all lists so far.
    members: usize,
}

/// A list of ranks, as it is and sorted.
#[derive(Clone)]
struct Members {
    list: Arc<[u32]>,
    sorted: Arc<[u32]>,
}

impl<'a> Reader<'a> {
    /// # Errors
    /// What is allowed.
    fn line(&mut self, line: &'a str) -> Result<(), &'static str> {
        let words: Vec<&'a str> = line.split_ascii_whitespace().take(12).collect();
        match words[..] {
            [] => Ok(()),
            ["rank", ..] => self.rank(&words).ok_or(RANK),
            ["communicator", number, ordinal, list] => {
                self.communicator(number, ordinal, list).ok_or(COMMUNICATOR)
            }
            ["communicator", ..] => Err(COMMUNICATOR),
            _ => self.operation(&words).ok_or(OPERATION),
        }
    }

    fn rank(&mut self, words: &[&str]) -> Option<()> {
        let [
            _,
            rank,
            "host",
            host,
            "program_ns",
            program_ns,
            "left_out",
            left_out,
            "nonblocking",
            nonblocking,
        ] = *words
        else {
            return None;
        };
        let rank: usize = rank.parse().ok()?;
        if core::mem::replace(self.is_there.get_mut(rank)?, true) {
            return None;
        }
        self.rank = Some(rank);
        self.now_ns = 0;
        self.trace.ranks[rank] = RankTrace {
            host: host.to_owned(),
            program_ns: program_ns.parse().ok()?,
            left_out: left_out.parse().ok()?,
            nonblocking: nonblocking.parse().ok()?,
            ..RankTrace::default()
        };
        Some(())
    }

    fn communicator(&mut self, number: &str, ordinal: &str, list: &'a str) -> Option<()> {
        let number: usize = number.parse().ok()?;
        let ordinal = ordinal.parse().ok()?;
        let rank = self.rank?;
        let Members { list: members, sorted } = self.members(list)?;
        let communicators = &mut self.trace.ranks[rank].communicators;
        if number != communicators.len() || sorted.binary_search(&(rank as u32)).is_err() {
            return None;
        }
        communicators.push(TracedCommunicator { ordinal, members });
        Some(())
    }

    fn members(&mut self, list: &'a str) -> Option<Members> {
        if let Some(known) = self.lists.get(list) {
            return Some(known.clone());
        }
        let read = members::read(list, self.trace.ranks.len() as u32)?;
        self.members += read.len();
        if self.members > MEMBERS_MAX {
            return None;
        }
        let mut sorted = read.clone();
        sorted.sort_unstable();
        let made = Members { list: read.into(), sorted: sorted.into() };
        self.lists.insert(list, made.clone());
        Some(made)
    }

    fn operation(&mut self, words: &[&str]) -> Option<()> {
        let [communicator, kind, root, bytes, path, gap_ns, length_ns] = *words else {
            return None;
        };
        let rank = &mut self.trace.ranks[self.rank?];
        let communicator: u32 = communicator.parse().ok()?;
        let root: u32 = root.parse().ok()?;
        let members = rank.communicators.get(communicator as usize)?.members.len();
        if root as usize >= members {
            return None;
        }
        let traced = Traced {
            communicator,
            kind: CollectiveKind::from_name(kind)?,
            root,
            bytes: bytes.parse().ok()?,
            path: Path::ALL.into_iter().find(|known| known.name() == path)?,
            gap_ns: gap_ns.parse().ok()?,
            length_ns: length_ns.parse().ok()?,
        };
        self.now_ns = self.now_ns.checked_add(traced.gap_ns)?.checked_add(traced.length_ns)?;
        rank.operations.push(traced);
        Some(())
    }
}
