//! The collectives: checks what a client asks for, and says it in operations of the host library.
//!
//! Members of a spec that an operation does not use are not looked at: clients leave them uninitialised.

use tributary_client::{Blocks, Collective, Operation};
use tributary_wire::{Datatype, Operator};

use crate::abi::{BcastSpec, GatherSpec, ReduceSpec};
use crate::communicator::Group;
use crate::failure::Failure;
use crate::memory::Region;
use crate::numbers::reduction;
use crate::windows;
use crate::work::Work;

/// `sharp_coll_do_allreduce`.
pub(crate) fn allreduce(_: &Group, spec: &ReduceSpec) -> Result<Work, Failure> {
    let (operation, len_bytes) = reduction_of(spec)?;
    let source = Region::of(&spec.sbuf_desc, "sbuf_desc")?;
    let target = Region::of(&spec.rbuf_desc, "rbuf_desc")?;
    source.holds(len_bytes, "sbuf_desc")?;
    target.holds(len_bytes, "rbuf_desc")?;
    are_one_or_apart(source.first(len_bytes), target.first(len_bytes))?;
    Ok(Work::of(Operation {
        collective: Collective::Allreduce,
        source: source.start,
        target: target.start,
        ..operation
    }))
}

/// `sharp_coll_do_reduce`.
pub(crate) fn reduce(group: &Group, spec: &ReduceSpec) -> Result<Work, Failure> {
    let (operation, len_bytes) = reduction_of(spec)?;
    let root = rank_of(group, spec.root)?;
    let source = Region::of(&spec.sbuf_desc, "sbuf_desc")?;
    source.holds(len_bytes, "sbuf_desc")?;
    let mut target = Region::EMPTY;
    if group.rank == root {
        target = Region::of(&spec.rbuf_desc, "rbuf_desc")?;
        target.holds(len_bytes, "rbuf_desc")?;
        are_one_or_apart(source.first(len_bytes), target.first(len_bytes))?;
    }
    Ok(Work::of(Operation {
        collective: Collective::Reduce { root },
        source: source.start,
        target: target.start,
        ..operation
    }))
}

/// `sharp_coll_do_bcast`.
pub(crate) fn bcast(group: &Group, spec: &BcastSpec) -> Result<Work, Failure> {
    let root = rank_of(group, spec.root)?;
    let buffer = Region::of(&spec.buf_desc, "buf_desc")?;
    buffer.holds(spec.size, "buf_desc")?;
    Ok(Work::of(broadcast(root, buffer.first(spec.size))))
}

/// `sharp_coll_do_barrier`.
pub(crate) fn barrier() -> Work {
    Work::of(Operation::BARRIER)
}

/// `sharp_coll_do_reduce_scatter`.
pub(crate) fn reduce_scatter(group: &Group, spec: &ReduceSpec) -> Result<Work, Failure> {
    let (operator, datatype) = reduction(spec.op, spec.dtype)?;
    let target = Region::of(&spec.rbuf_desc, "rbuf_desc")?;
    let is_in_place = spec.sbuf_desc.buffer.ptr == spec.rbuf_desc.buffer.ptr
        && spec.sbuf_desc.buffer.mem_handle == spec.rbuf_desc.buffer.mem_handle;
    let geometry = windows::Geometry {
        rank: group.rank,
        size: group.size,
        element_bytes: datatype.size_bytes(),
        offset_bytes: spec.offset,
    };
    let scatter = if is_in_place {
        geometry.scatter_in_place(target)?
    } else {
        geometry.scatter(Region::of(&spec.sbuf_desc, "sbuf_desc")?, target)?
    };
    Ok(scatter.work(Operation {
        collective: Collective::ReduceScatter,
        datatype,
        operator,
        ..Operation::BARRIER
    }))
}

/// `sharp_coll_do_allgather`.
///
/// # Safety
/// The client's buffers are ours already: this rank's part is brought to its place.
pub(crate) unsafe fn allgather(group: &Group, spec: &GatherSpec) -> Result<Work, Failure> {
    let source = Region::of_any(&spec.sbuf_desc, "sbuf_desc")?;
    let target = Region::of_any(&spec.rbuf_desc, "rbuf_desc")?;
    let geometry = windows::Geometry {
        rank: group.rank,
        size: group.size,
        element_bytes: 1,
        offset_bytes: spec.offset,
    };
    let pieces = geometry.gather(source, target)?;
    if pieces.is_whole {
        // SAFETY: as the caller promises.
        return Ok(unsafe { whole_allgather(group, source, target) });
    }
    // SAFETY: as the caller promises.
    unsafe { pieces.bring_own(source, group.rank) };
    let broadcasts = pieces.of_ranks.iter().map(|(rank, piece)| broadcast(*rank, *piece));
    Ok(Work { operations: broadcasts.collect(), ..Work::default() })
}

/// # Safety
/// The source is the client's, and ours already.
unsafe fn whole_allgather(group: &Group, source: Region, target: Region) -> Work {
    let mut work = Work::of(Operation {
        collective: Collective::Allgather,
        operator: Operator::Broadcast,
        datatype: Datatype::U8,
        elements: source.len_bytes as u64,
        source: source.start,
        target: target.start,
        ..Operation::BARRIER
    });
    let own_part = target.start.wrapping_add(group.rank as usize * source.len_bytes);
    if source.start != own_part && source.overlaps(&target) {
        // SAFETY: as the caller promises.
        let bytes = unsafe { std::slice::from_raw_parts(source.start, source.len_bytes) };
        work.staged = bytes.to_vec();
        work.operations[0].source = work.staged.as_ptr();
    }
    work
}

fn broadcast(root: u32, buffer: Region) -> Operation {
    Operation {
        collective: Collective::Broadcast { root },
        operator: Operator::Broadcast,
        elements: buffer.len_bytes as u64,
        source: buffer.start,
        target: buffer.start,
        blocks: Blocks::Even,
        ..Operation::BARRIER
    }
}

/// A reduction of `spec.length` elements, without its collective and buffers, and its length.
fn reduction_of(spec: &ReduceSpec) -> Result<(Operation, usize), Failure> {
    let (operator, datatype) = reduction(spec.op, spec.dtype)?;
    let len_bytes = spec.length.checked_mul(datatype.size_bytes()).ok_or_else(|| {
        Failure::invalid(format!("{} elements are longer than all memory", spec.length))
    })?;
    let elements = spec.length as u64;
    Ok((Operation { operator, datatype, elements, ..Operation::BARRIER }, len_bytes))
}

fn rank_of(group: &Group, root: i32) -> Result<u32, Failure> {
    let rank = u32::try_from(root).ok().filter(|root| *root < group.size);
    rank.ok_or_else(|| Failure::invalid(format!("root {root} is not a rank of {}", group.size)))
}

fn are_one_or_apart(source: Region, target: Region) -> Result<(), Failure> {
    if source.start == target.start || !source.overlaps(&target) {
        return Ok(());
    }
    Err(Failure::invalid("source and target overlap, and do not begin at the same address"))
}
