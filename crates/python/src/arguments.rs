//! Operations from the arguments of Python's calls: what has to fit together, and where it does not.

use std::time::Duration;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use tributary_client::{Blocks, Collective, Operation};
use tributary_wire::{Datatype, Operator};

use crate::buffer::Buffer;

/// A time from Python, which may be anything.
pub(crate) fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{value} is no number of seconds to wait")))
}

/// What an operation uses while it is outstanding.
#[derive(Default)]
pub(crate) struct Held {
    _buffers: Vec<Buffer>,
    /// Of a reduce-scatter's blocks.
    cuts: Option<Box<[u64]>>,
}

/// One operation with its memory.
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(crate) held: Held,
}

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

impl Asked {
    pub(crate) fn barrier() -> Self {
        Self { operation: Operation::BARRIER, held: Held::default() }
    }

    pub(crate) fn allreduce(
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        operator: &str,
    ) -> PyResult<Self> {
        let (source, target) = open(source, target)?;
        same_length(&source, target.as_ref(), 1)?;
        Self::reduction(Collective::Allreduce, source, target, operator)
    }

    /// The target is needed at the root alone, unless the source is to be it.
    pub(crate) fn reduce(
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        operator: &str,
        root: u32,
        is_root: bool,
    ) -> PyResult<Self> {
        if !is_root {
            let source = Buffer::source(source, "source")?;
            let collective = Collective::Reduce { root };
            let mut asked = Self::reduction_of(collective, source, None, operator)?;
            asked.operation.target = std::ptr::null_mut();
            return Ok(asked);
        }
        let (source, target) = open(source, target)?;
        same_length(&source, target.as_ref(), 1)?;
        Self::reduction(Collective::Reduce { root }, source, target, operator)
    }

    pub(crate) fn broadcast(buffer: Object<'_, '_>, root: u32, is_root: bool) -> PyResult<Self> {
        // The root only reads.
        let open = if is_root { Buffer::source } else { Buffer::target };
        let buffer = open(buffer, "buffer")?;
        let operation = Operation {
            collective: Collective::Broadcast { root },
            operator: Operator::Broadcast,
            elements: buffer.len_bytes as u64,
            source: buffer.pointer,
            target: buffer.pointer,
            ..Operation::BARRIER
        };
        Ok(Self { operation, held: Held { _buffers: vec![buffer], cuts: None } })
    }

    pub(crate) fn allgather(
        source: Option<Object<'_, '_>>,
        target: Object<'_, '_>,
        rank: u32,
        ranks: u32,
    ) -> PyResult<Self> {
        let target = Buffer::target(target, "target")?;
        let block_bytes = target.len_bytes / ranks as usize;
        let own = target.pointer.wrapping_add(block_bytes * rank as usize);
        let source = source.map(|source| Buffer::source(source, "source")).transpose()?;
        if let Some(source) = &source {
            same_element(source, &target)?;
        }
        let source_bytes = source.as_ref().map_or(block_bytes, |source| source.len_bytes);
        if source_bytes * ranks as usize != target.len_bytes {
            return Err(PyValueError::new_err(format!(
                "target has {} bytes; {ranks} ranks contribute {source_bytes} each",
                target.len_bytes
            )));
        }
        let is_own = |source: &Buffer| source.pointer == own;
        if let Some(source) = source.as_ref().filter(|source| !is_own(source)) {
            apart(source, &target)?;
        }
        let operation = Operation {
            collective: Collective::Allgather,
            operator: Operator::Broadcast,
            elements: block_bytes as u64,
            source: source.as_ref().map_or(own, |source| source.pointer),
            target: target.pointer,
            ..Operation::BARRIER
        };
        Ok(Self {
            operation,
            held: Held { _buffers: source.into_iter().chain([target]).collect(), cuts: None },
        })
    }

    pub(crate) fn reduce_scatter(
        source: Object<'_, '_>,
        target: Option<Object<'_, '_>>,
        operator: &str,
        counts: Option<Vec<u64>>,
        rank: u32,
        ranks: u32,
    ) -> PyResult<Self> {
        let (source, target) = open(source, target)?;
        let elements = source.elements() as u64;
        let cuts = counts.map(|counts| cuts(&counts, elements, ranks)).transpose()?;
        let block = match &cuts {
            Some(cuts) => cuts[rank as usize + 1] - cuts[rank as usize],
            None if elements.is_multiple_of(u64::from(ranks)) => elements / u64::from(ranks),
            None => {
                return Err(PyValueError::new_err(format!(
                    "source has {elements} elements, which {ranks} ranks can't share evenly: pass counts"
                )));
            }
        };
        if let Some(target) = &target
            && target.elements() as u64 != block
        {
            return Err(PyValueError::new_err(format!(
                "target has {} elements; this rank's block has {block}",
                target.elements()
            )));
        }
        let mut asked = Self::reduction(Collective::ReduceScatter, source, target, operator)?;
        if let Some(cuts) = cuts {
            asked.operation.blocks = Blocks::At(cuts.as_ptr());
            asked.held.cuts = Some(cuts);
        }
        Ok(asked)
    }

    /// A reduction whose target, if it is another one, is apart from the source.
    fn reduction(
        collective: Collective,
        source: Buffer,
        target: Option<Buffer>,
        operator: &str,
    ) -> PyResult<Self> {
        if let Some(target) = target.as_ref().filter(|target| target.pointer != source.pointer) {
            apart(&source, target)?;
        }
        Self::reduction_of(collective, source, target, operator)
    }

    fn reduction_of(
        collective: Collective,
        source: Buffer,
        target: Option<Buffer>,
        operator: &str,
    ) -> PyResult<Self> {
        let operator = operator_named(operator)?;
        let datatype = datatype(&source, operator)?;
        let operation = Operation {
            collective,
            datatype,
            operator,
            elements: source.elements() as u64,
            source: source.pointer,
            target: target.as_ref().map_or(source.pointer, |target| target.pointer),
            ..Operation::BARRIER
        };
        Ok(Self {
            operation,
            held: Held { _buffers: [source].into_iter().chain(target).collect(), cuts: None },
        })
    }
}

/// Source and target; where there is no target, the source is it.
fn open(
    source: Object<'_, '_>,
    target: Option<Object<'_, '_>>,
) -> PyResult<(Buffer, Option<Buffer>)> {
    let Some(target) = target else { return Ok((Buffer::target(source, "buffer")?, None)) };
    let (source, target) = (Buffer::source(source, "source")?, Buffer::target(target, "target")?);
    same_element(&source, &target)?;
    Ok((source, Some(target)))
}

fn same_element(source: &Buffer, target: &Buffer) -> PyResult<()> {
    if source.element == target.element {
        return Ok(());
    }
    let (source, target) = (&source.element.name, &target.element.name);
    Err(PyTypeError::new_err(format!("source has elements of {source}, target of {target}")))
}

fn same_length(source: &Buffer, target: Option<&Buffer>, times: usize) -> PyResult<()> {
    match target {
        Some(target) if target.len_bytes != source.len_bytes * times => Err(PyValueError::new_err(
            format!("source has {} elements, target {}", source.elements(), target.elements()),
        )),
        _ => Ok(()),
    }
}

fn apart(source: &Buffer, target: &Buffer) -> PyResult<()> {
    if source.overlaps(target) {
        return Err(PyBufferError::new_err(
            "source and target overlap, and are not the same memory",
        ));
    }
    Ok(())
}

fn operator_named(name: &str) -> PyResult<Operator> {
    let reductions = || Operator::ALL.into_iter().filter(|operator| operator.is_reduction());
    let found = reductions().find(|operator| operator.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = reductions().map(Operator::name).collect();
        PyValueError::new_err(format!(
            "there is no operator {name:?}; there are {}",
            names.join(", ")
        ))
    })
}

fn datatype(buffer: &Buffer, operator: Operator) -> PyResult<Datatype> {
    let element = &buffer.element;
    let keeps_bool = !matches!(operator, Operator::Sum | Operator::Product);
    match element.datatype {
        Some(datatype) if operator.applies_to(datatype) && (keeps_bool || !element.is_bool) => {
            Ok(datatype)
        }
        Some(_) => Err(PyTypeError::new_err(format!(
            "{} is not defined on {}",
            operator.name(),
            element.name
        ))),
        None => Err(PyTypeError::new_err(format!(
            "elements of {} can be moved but not combined",
            element.name
        ))),
    }
}

/// Where each rank's block begins, and where the last one ends.
fn cuts(counts: &[u64], elements: u64, ranks: u32) -> PyResult<Box<[u64]>> {
    let refused = |text| Err(PyValueError::new_err(text));
    if counts.len() != ranks as usize {
        return refused(format!("counts has {} numbers for {ranks} ranks", counts.len()));
    }
    let mut end = 0_u64;
    let mut cuts = vec![0];
    for count in counts {
        end = end.saturating_add(*count);
        cuts.push(end);
    }
    if end != elements {
        return refused(format!("counts add up to {end}; source has {elements} elements"));
    }
    Ok(cuts.into_boxed_slice())
}
