//! Long vectors at hosts with several ranks, which reduce one part while another is in the tree.
//!
//! Owns what the steps do. Their order, and when the leader asks for the stream lock, is decided in
//! [`pipeline`](tributary_waits::pipeline).

use tributary_shm_collectives::{HostGroup, Operation};
use tributary_tuning::Method;
use tributary_waits::awaited::WaitsFor;
use tributary_waits::pipeline::{Pipeline, Step};
use tributary_wire::StreamTerms;

use super::outcome::Failure;
use tributary_inter_host::{FailoverTree, InterHost, InterHostOperation, stream_part_bytes};

/// One operation that is streamed while the host works.
pub(crate) struct Streamed {
    /// To the leader.
    reduce: Operation,
    /// From the leader; none where this host gets no result.
    spread: Option<Operation>,
    /// What the leader streams: its vector and where the result goes. None at other ranks.
    stream: Option<Stream>,
    part_bytes: usize,
    pipeline: Pipeline,
    is_step_started: bool,
}

struct Stream {
    operation: InterHostOperation,
    is_started: bool,
    is_over: bool,
}

impl Streamed {
    /// `reduce` and `spread` cover the whole vector. None if it is a single part: nothing would
    /// overlap.
    pub(crate) fn new(
        reduce: Operation,
        spread: Option<Operation>,
        element_bytes: usize,
        terms: StreamTerms,
    ) -> Option<Self> {
        let chunk_bytes = terms.chunk_bytes as usize / element_bytes * element_bytes;
        let part_bytes = stream_part_bytes(chunk_bytes, terms.window);
        (part_bytes > 0 && reduce.len_bytes > part_bytes).then(|| Self {
            reduce,
            spread,
            stream: None,
            part_bytes,
            pipeline: Pipeline::new(reduce.len_bytes.div_ceil(part_bytes), spread.is_some()),
            is_step_started: false,
        })
    }

    /// At the leader: what it streams.
    pub(crate) fn streams(self, operation: InterHostOperation) -> Self {
        let stream = Some(Stream { operation, is_started: false, is_over: false });
        Self { stream, ..self }
    }

    /// What goes between hosts; none at a rank that leads nothing.
    pub(super) fn operation(&self) -> Option<&InterHostOperation> {
        self.stream.as_ref().map(|stream| &stream.operation)
    }

    /// Goes as far as it can without waiting. `true` once this rank's part is done.
    pub(super) fn advance(
        &mut self,
        host: &mut HostGroup,
        mut tree: Option<&mut FailoverTree>,
    ) -> Result<bool, Failure> {
        loop {
            self.poll_tree(tree.as_deref_mut())?;
            let step = self.pipeline.step();
            let (whole, part) = match step {
                Step::Reduce(part) => (self.reduce, part),
                Step::Spread(part) => {
                    if !self.is_step_started && !self.has_result(part, tree.as_deref()) {
                        return Ok(false);
                    }
                    (self.spread.expect("only what is to be spread has steps for it"), part)
                }
                Step::Done => return Ok(self.stream.as_ref().is_none_or(|it| it.is_over)),
            };
            if !std::mem::replace(&mut self.is_step_started, true) {
                // SAFETY: the part lies within the whole operation's buffers, which belong to the
                // operation that runs.
                unsafe { host.start(self.slice(whole, part)) }.map_err(Failure::Host)?;
            }
            if host.poll().map_err(Failure::Host)?.is_pending() {
                return Ok(false);
            }
            self.on_step_over(step, tree.as_deref_mut());
        }
    }

    /// What it waits for, after it could not go on.
    pub(super) fn waits_for(&self) -> WaitsFor {
        match &self.stream {
            None => WaitsFor::Host,
            Some(stream) if stream.is_over || !stream.is_started => WaitsFor::Host,
            Some(_) if self.is_step_started => WaitsFor::Both,
            Some(_) => WaitsFor::InterHost,
        }
    }

    fn on_step_over(&mut self, step: Step, tree: Option<&mut FailoverTree>) {
        self.is_step_started = false;
        self.pipeline.on_step_over();
        if let (Step::Reduce(part), Some(Stream { is_started: true, .. }), Some(tree)) =
            (step, &self.stream, tree)
        {
            tree.make_ready(self.end_of(part));
        }
    }

    fn poll_tree(&mut self, tree: Option<&mut FailoverTree>) -> Result<(), Failure> {
        if !self.pipeline.may_ask_for_lock() {
            return Ok(());
        }
        let ready_bytes = self.end_of(self.pipeline.reduced_parts() - 1);
        let (Some(stream), Some(tree)) = (&mut self.stream, tree) else { return Ok(()) };
        let failed = |abort| Failure::InterHost(Method::Tree, abort);
        if !std::mem::replace(&mut stream.is_started, true) {
            // SAFETY: the buffers belong to the operation that runs.
            unsafe { tree.start_stream(&stream.operation) }.map_err(failed)?;
            tree.make_ready(ready_bytes);
        }
        if !stream.is_over {
            stream.is_over = tree.poll().map_err(failed)?;
        }
        Ok(())
    }

    /// Whether a part's result is here. Only the leader knows; the others wait for the leader.
    fn has_result(&self, part: usize, tree: Option<&FailoverTree>) -> bool {
        let (Some(stream), Some(tree)) = (&self.stream, tree) else { return true };
        stream.is_over || tree.received_bytes() >= self.end_of(part)
    }

    fn end_of(&self, part: usize) -> usize {
        ((part + 1) * self.part_bytes).min(self.reduce.len_bytes)
    }

    fn slice(&self, whole: Operation, part: usize) -> Operation {
        let first = part * self.part_bytes;
        // Pointers that are not used at this rank may be null, and stay what they are.
        let source =
            if whole.source.is_null() { whole.source } else { whole.source.wrapping_add(first) };
        let target =
            if whole.target.is_null() { whole.target } else { whole.target.wrapping_add(first) };
        Operation { source, target, len_bytes: self.end_of(part) - first, ..whole }
    }
}

// SAFETY: the pointers are the operation's own, which may be used from any thread; see `Operation`.
unsafe impl Send for Streamed {}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_shm_collectives::Action;

    fn streamed(len_bytes: usize, spreads: bool) -> Option<Streamed> {
        let of = |action| Operation {
            action,
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
            len_bytes,
        };
        let spread = spreads.then(|| of(Action::Broadcast { from: 0 }));
        let terms = StreamTerms { chunk_bytes: 100, window: 4 };
        Streamed::new(of(Action::Barrier), spread, 8, terms)
    }

    #[test]
    fn a_single_part_is_not_streamed_so() {
        assert!(streamed(193, true).is_some());
        assert!(streamed(192, true).is_none(), "one part overlaps with nothing");
    }

    #[test]
    fn parts_cover_the_vector() {
        let streamed = streamed(1000, true).unwrap();
        let mut end = 0;
        for part in 0..6 {
            let slice = streamed.slice(streamed.reduce, part);
            assert!(slice.source.is_null(), "what is not there is not made up");
            end += slice.len_bytes;
            assert_eq!(end, streamed.end_of(part));
        }
        assert_eq!(end, 1000);
    }
}
