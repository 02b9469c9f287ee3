//! Lists of ranks as text: `0-3,8,10-11`, in the order of the list.

use std::fmt::Write as _;

/// The list as text, with ranges of neighbours that ascend.
pub(super) fn write(members: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = members;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(member, next)| *member == next).count();
        let comma = if text.is_empty() { "" } else { "," };
        let last = rest[run - 1];
        if run > 1 {
            write!(text, "{comma}{first}-{last}").expect("a text takes everything");
        } else {
            write!(text, "{comma}{first}").expect("a text takes everything");
        }
        rest = &rest[run..];
    }
    text
}

/// The list that a text says, of ranks below `ranks`; none if it says no such list. No rank is twice in a
/// list, so it has at most `ranks` entries.
pub(super) fn read(text: &str, ranks: u32) -> Option<Vec<u32>> {
    let mut members: Vec<u32> = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let count = last.checked_sub(first)? as usize + 1;
        if last >= ranks || members.len() + count > ranks as usize {
            return None;
        }
        members.extend(first..=last);
    }
    let mut sorted = members.clone();
    sorted.sort_unstable();
    let is_set = sorted.windows(2).all(|pair| pair[0] < pair[1]);
    is_set.then_some(members)
}
