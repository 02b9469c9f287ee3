//! A communicator, as C holds it.

use std::sync::Arc;

use tributary_client::report::Counters;
use tributary_client::{Collective, Communicator, Operation};
use tributary_wire::{Datatype, Operator};

use crate::abi::CommInitSpec;
use crate::context::{Context, agree};
use crate::failure::Failure;
use crate::handles::{Handle, Table};
use crate::log::{self, Level};
use crate::out_of_band::Ranks;

/// The communicators of this process.
pub(crate) static COMMUNICATORS: Table<Group> = Table::new(2);

/// How the report calls communicators of this interface.
const LABEL: &str = "sharp_coll_comm_init";

/// A communicator at one rank.
pub(crate) struct Group {
    pub(crate) communicator: Communicator,
    pub(crate) context: Arc<Context>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    counters: Arc<Counters>,
}

impl Group {
    /// Sets a communicator up. Collective over its ranks, and the outcome is the same at all of them, unless
    /// a rank's spec names no rank.
    ///
    /// # Errors
    /// If it can't be carried.
    ///
    /// # Safety
    /// The callbacks of the context may be called with the spec's during this call.
    pub(crate) unsafe fn create(
        context: &Arc<Context>,
        spec: &CommInitSpec,
    ) -> Result<Self, Failure> {
        // SAFETY: as the caller promises.
        let ranks = unsafe { Ranks::new(spec.rank, spec.size, context.callbacks, spec.oob_ctx) };
        let mut ranks = ranks?;
        let (rank, size) = (spec.rank.cast_unsigned(), spec.size.cast_unsigned());
        agree(&mut ranks, check_size(size, context.world_size))?;
        let counters = context.counters.open(LABEL, size, rank == 0);
        let hook = context.progress_hook();
        let communicator = Communicator::create(&context.client, &mut ranks, &counters, hook)?;
        Ok(Self { communicator, context: Arc::clone(context), rank, size, counters })
    }
}

/// Says once for all ranks what was set up, and which way its allreduces go.
pub(crate) fn announce(group: &Group) {
    if group.rank != 0 {
        return;
    }
    if let Some(note) = group.counters.note() {
        log::write(Level::Warn, || format!("communicator of {} ranks: {note}", group.size));
    }
    log::write(Level::Info, || {
        let path = |elements| {
            let allreduce = Operation {
                collective: Collective::Allreduce,
                operator: Operator::Sum,
                datatype: Datatype::F32,
                elements,
                ..Operation::BARRIER
            };
            group.communicator.path_kind(&allreduce).name()
        };
        format!(
            "communicator of {} ranks; allreduces of 8 bytes go {}, of 1 MiB {}",
            group.size,
            path(2),
            path(1 << 18)
        )
    });
}

fn check_size(size: u32, world_size: u32) -> Result<(), Failure> {
    if size <= world_size {
        return Ok(());
    }
    Err(Failure::invalid(format!("a communicator of {size} ranks in a job of {world_size}")))
}

/// The communicator of a handle.
///
/// # Errors
/// If it is none.
pub(crate) fn find(handle: Handle) -> Result<Arc<Group>, Failure> {
    COMMUNICATORS.find(handle).ok_or_else(|| {
        Failure::invalid(format!("{handle:p} is no communicator: call sharp_coll_comm_init"))
    })
}
