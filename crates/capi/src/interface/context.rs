//! Contexts: opening, closing, and what they tell.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use super::{dereference, place};
use crate::abi::{Caps, FEATURE_SAT, HIDE_ERRORS, InitSpec};
use crate::communicator::COMMUNICATORS;
use crate::context::{CONTEXTS, Context, announce, find};
use crate::environment;
use crate::failure::{Code, Failure, status};
use crate::handles::Handle;
use crate::log::{self, Level};
use crate::numbers::DATATYPE_MASK;
use crate::report;

/// Opens the job's context.
///
/// # Safety
/// The pointers are as [`super`] says. The spec's callbacks are those of the header, and may be called with
/// its context during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_init(spec: *const InitSpec, context: *mut Handle) -> c_int {
    // SAFETY: the rule on pointers.
    let checked =
        unsafe { place(context, "context").and_then(|to| Ok((to, dereference(spec, "spec")?))) };
    let (to, spec) = match checked {
        Ok(checked) => checked,
        Err(failure) => return status(Err(failure)),
    };
    *to = std::ptr::null_mut();
    // SAFETY: the contract of this function.
    match unsafe { Context::open(spec) } {
        Ok(opened) => {
            announce(&opened);
            *to = CONTEXTS.insert(Arc::new(opened));
            0
        }
        Err(failure) if spec.config.flags & HIDE_ERRORS != 0 => failure.report(Level::Debug),
        Err(failure) => failure.report(Level::Error),
    }
}

/// Ends a context and its communicators, and writes the report.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_finalize(context: Handle) -> c_int {
    let Some(ended) = CONTEXTS.remove(context) else {
        return status(find(context).map(drop));
    };
    for communicator in ended.communicators() {
        COMMUNICATORS.remove(communicator);
    }
    if ended.environment.dumps_stats {
        // What can't be told is no failure of the job.
        let _ = report::dump_counts(&ended);
    }
    status(report::publish(&ended))
}

/// Says what can be reduced, and which features there are.
///
/// # Safety
/// The pointers are as [`super`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_caps_query(context: Handle, caps: *mut Caps) -> c_int {
    let told = find(context).and_then(|context| {
        let feature_mask = if context.environment.has_streaming { FEATURE_SAT } else { 0 };
        // SAFETY: the rule on pointers.
        *unsafe { place(caps, "caps") }? = Caps { dtypes: DATATYPE_MASK, feature_mask };
        Ok(())
    });
    status(told)
}

/// Goes on with the nonblocking operations of a context.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_progress(context: Handle) -> c_int {
    let progressed = find(context).map(|context| {
        let groups = context.communicators().into_iter().filter_map(|at| COMMUNICATORS.find(at));
        groups.for_each(|group| group.communicator.progress());
    });
    status(progressed)
}

/// Writes a context's report to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_dump_stats(context: Handle) -> c_int {
    status(find(context).and_then(|context| report::dump(&context)))
}

/// Writes every setting to a C stream.
///
/// # Safety
/// `stream` is null, or an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_print_config(stream: *mut c_void, _flags: c_int) -> c_int {
    let stream: *mut libc::FILE = stream.cast();
    let text = CString::new(environment::listing()).unwrap_or_default();
    if stream.is_null() {
        return status(Err(Failure::invalid("stream is NULL")));
    }
    // SAFETY: the stream is open, as the caller promises, and the text terminated.
    let written = unsafe { libc::fputs(text.as_ptr(), stream) };
    let failed = || Failure::new(Code::Error, "the stream takes no text");
    status(if written < 0 { Err(failed()) } else { Ok(()) })
}

/// Takes the log level from the environment.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_log_early_init() -> c_int {
    status(environment::log_level().map(log::set_level))
}
