//! What the kernel queues at a socket: a filter that it runs for every datagram, before a process is woken for it.
//!
//! A filter is no check: what passes is decoded and judged as if there were none. It keeps strangers' datagrams from
//! waking a process, which would take its core from others for each of them. It needs no privilege.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use tributary_wire::Capability;
use tributary_wire::frame::{CAPABILITY_OFFSET, HEADER_BYTES, MAGIC};

use super::sys::{self, FilterStep};

/// Most capabilities that a filter may look for. A search takes two steps for each of them, the kernel allows 4,096,
/// and some kernels 20 KiB for what the steps become.
pub const FILTERED_CAPABILITIES_MAX: usize = 1024;

/// A filter sees a datagram from its UDP header on.
const UDP_HEADER_BYTES: u32 = 8;
/// What a filter returns to keep a datagram as long as it is, and to drop it.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;
/// Words that are compared one after the other at the end of a search.
const COMPARED_MAX: usize = 4;

/// Queues frames alone: the kernel drops what is shorter than a frame's header or does not begin with the magic.
/// Empty datagrams are dropped, too. Where the kernel has no filters everything is queued: the process drops the same.
///
/// # Errors
/// If the kernel neither takes this filter nor gives up the one before.
pub(super) fn queue_frames(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut steps = must_begin_as_frame();
    steps.push(FilterStep::end(KEEP));
    sys::attach_filter(socket, &steps).or_else(|_| sys::detach_filter(socket))
}

/// Queues those frames alone that may show one of `capabilities`, by the first four bytes of it: 2^-32 of the others
/// pass, too.
///
/// # Errors
/// If there are more than [`FILTERED_CAPABILITIES_MAX`] or the kernel refuses; then the socket keeps the filter it had.
pub(super) fn queue_holders(
    socket: BorrowedFd<'_>,
    capabilities: impl IntoIterator<Item = Capability>,
) -> Result<(), Errno> {
    let capabilities = capabilities.into_iter();
    let mut words: Vec<_> =
        capabilities.take(FILTERED_CAPABILITIES_MAX + 1).map(first_word).collect();
    if words.len() > FILTERED_CAPABILITIES_MAX {
        return Err(Errno::TOOBIG);
    }
    words.sort_unstable();
    words.dedup();
    let mut steps = must_begin_as_frame();
    steps.push(FilterStep::load_word(UDP_HEADER_BYTES + CAPABILITY_OFFSET as u32));
    search(&words, &mut steps);
    sys::attach_filter(socket, &steps)
}

/// As a filter loads it: in network order.
fn first_word(capability: Capability) -> u32 {
    let [a, b, c, d, ..] = capability.to_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Steps that drop what does not begin as a frame, and go on otherwise.
fn must_begin_as_frame() -> Vec<FilterStep> {
    vec![
        FilterStep::load_length(),
        FilterStep::if_at_least(UDP_HEADER_BYTES + HEADER_BYTES as u32, 1),
        FilterStep::end(DROP),
        FilterStep::load_word(UDP_HEADER_BYTES),
        FilterStep::if_equal(u32::from_be_bytes(MAGIC), 1),
        FilterStep::end(DROP),
    ]
}

/// Adds steps that keep the datagram if the accumulator is one of `words`, which ascend, and drop it otherwise.
fn search(words: &[u32], steps: &mut Vec<FilterStep>) {
    if words.len() <= COMPARED_MAX {
        for (index, word) in words.iter().enumerate() {
            // Past the other words, and the step that drops.
            steps.push(FilterStep::if_equal(*word, (words.len() - index) as u8));
        }
        steps.extend([FilterStep::end(DROP), FilterStep::end(KEEP)]);
        return;
    }
    let (lower, upper) = words.split_at(words.len() / 2);
    steps.push(FilterStep::if_below(upper[0], 1));
    // A comparison skips 255 steps at most, a jump any number.
    let jump = steps.len();
    steps.push(FilterStep::jump(0));
    search(lower, steps);
    steps[jump] = FilterStep::jump((steps.len() - jump - 1) as u32);
    search(upper, steps);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_search_is_within_the_kernels_limits() {
        let words: Vec<_> = (0..FILTERED_CAPABILITIES_MAX as u32).collect();
        let mut steps = must_begin_as_frame();
        steps.push(FilterStep::load_word(0));
        search(&words, &mut steps);
        // Eight bytes a step, beside which the kernel keeps some of its own.
        assert!(steps.len() * 8 < 20_000, "{} steps", steps.len());
    }
}
