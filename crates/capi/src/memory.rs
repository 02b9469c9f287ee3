//! Registrations, and the memory that operations are given.
//!
//! Nothing is pinned: kernel and leaders read and write a program's memory as it is. A registration is a
//! promise that it is there, which is looked at when it is given and when it is used.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use crate::abi::{DATA_BUFFER, DataDesc, MEM_TYPE_HOST};
use crate::failure::Failure;
use crate::handles::{Handle, Table};

/// Memory that a client has registered.
pub(crate) struct Registration {
    range: Range<usize>,
}

static REGISTRATIONS: Table<Registration> = Table::new(4);

/// Registers memory of the host.
///
/// # Errors
/// If there is none, or the processor can't read it.
pub(crate) fn register(start: *mut c_void, len_bytes: usize) -> Result<Handle, Failure> {
    let range = range(start, len_bytes)?;
    if start.is_null() {
        return Err(Failure::invalid("the memory to register begins at NULL"));
    }
    let last = range.end.saturating_sub(1).max(range.start);
    if len_bytes > 0 && !(is_readable(range.start) && is_readable(last)) {
        return Err(Failure::not_supported(format!(
            "{len_bytes} bytes at {start:p} can't be read by the processor (memory of a device?): \
             give host memory"
        )));
    }
    Ok(REGISTRATIONS.insert(Arc::new(Registration { range })))
}

/// Ends a registration. Null is none, and may be given.
///
/// # Errors
/// If it is none.
pub(crate) fn deregister(handle: Handle) -> Result<(), Failure> {
    if handle.is_null() || REGISTRATIONS.remove(handle).is_some() {
        return Ok(());
    }
    Err(Failure::invalid(format!("{handle:p} is no registration")))
}

/// Memory of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: *mut u8,
    pub(crate) len_bytes: usize,
}

impl Region {
    /// The memory of a descriptor, whatever its type of memory says.
    ///
    /// # Errors
    /// If it can't be memory, or its registration does not cover it.
    pub(crate) fn of_any(desc: &DataDesc, name: &str) -> Result<Self, Failure> {
        if desc.kind != DATA_BUFFER {
            let kind = desc.kind;
            return Err(Failure::not_supported(format!(
                "{name}.type {kind} is no SHARP_DATA_BUFFER"
            )));
        }
        let start: *mut u8 = desc.buffer.ptr.cast();
        let region = Self { start, len_bytes: desc.buffer.length };
        let range = range(desc.buffer.ptr, region.len_bytes)
            .map_err(|failure| Failure::invalid(format!("{name}: {failure}")))?;
        if start.is_null() && region.len_bytes > 0 {
            let len_bytes = region.len_bytes;
            return Err(Failure::invalid(format!("{name} has {len_bytes} bytes at NULL")));
        }
        check_registration(desc.buffer.mem_handle, &range, name)?;
        Ok(region)
    }

    /// The memory of a descriptor.
    ///
    /// # Errors
    /// As [`of_any`](Self::of_any), and if it is not the host's.
    pub(crate) fn of(desc: &DataDesc, name: &str) -> Result<Self, Failure> {
        if desc.mem_type != MEM_TYPE_HOST {
            return Err(Failure::not_supported(format!(
                "{name}.mem_type {}: only SHARP_MEM_TYPE_HOST is moved; copy to host memory first",
                desc.mem_type
            )));
        }
        Self::of_any(desc, name)
    }

    /// Nothing.
    pub(crate) const EMPTY: Self = Self { start: std::ptr::null_mut(), len_bytes: 0 };

    /// Checks that there are as many bytes.
    pub(crate) fn holds(&self, len_bytes: usize, name: &str) -> Result<(), Failure> {
        if len_bytes <= self.len_bytes {
            return Ok(());
        }
        let has = self.len_bytes;
        Err(Failure::invalid(format!("{name} has {has} bytes, the operation needs {len_bytes}")))
    }

    /// The first `len_bytes`.
    pub(crate) fn first(self, len_bytes: usize) -> Self {
        Self { len_bytes, ..self }
    }

    /// Whether some byte is in both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let range = |region: &Self| region.start.addr()..region.start.addr() + region.len_bytes;
        let (one, other) = (range(self), range(other));
        one.start.max(other.start) < one.end.min(other.end)
    }
}

fn check_registration(handle: Handle, range: &Range<usize>, name: &str) -> Result<(), Failure> {
    // Caches of clients that have several threads may use a registration that another thread has just ended.
    // It says nothing then, and nothing was pinned.
    if handle.is_null() || REGISTRATIONS.was_freed(handle) {
        return Ok(());
    }
    let registration = REGISTRATIONS.find(handle).ok_or_else(|| {
        Failure::invalid(format!("{name}.buffer.mem_handle {handle:p} is no registration"))
    })?;
    let covered = &registration.range;
    if range.is_empty() || (covered.start <= range.start && range.end <= covered.end) {
        return Ok(());
    }
    let len_bytes = range.len();
    Err(Failure::invalid(format!(
        "{name} has {len_bytes} bytes at {:#x}, its registration covers {} at {:#x}",
        range.start,
        covered.len(),
        covered.start
    )))
}

fn range(start: *mut c_void, len_bytes: usize) -> Result<Range<usize>, Failure> {
    let start = start.addr();
    let end = start.checked_add(len_bytes).filter(|_| isize::try_from(len_bytes).is_ok());
    let end = end.ok_or_else(|| {
        Failure::invalid(format!("{len_bytes} bytes at {start:#x} end beyond all memory"))
    })?;
    Ok(start..end)
}

/// Whether the processor can read a byte. Where the kernel does not tell, it is taken for readable.
fn is_readable(address: usize) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 1 };
    // SAFETY: `local` is a byte of this frame; the kernel checks the address in `remote`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    read == 1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Buffer;

    fn desc(start: *mut u8, length: usize, mem_handle: Handle) -> DataDesc {
        let buffer = Buffer { ptr: start.cast(), length, mem_handle };
        DataDesc { kind: DATA_BUFFER, mem_type: MEM_TYPE_HOST, buffer }
    }

    #[test]
    fn memory_that_is_not_there_is_not_registered() {
        for (address, len_bytes) in [(0, 8), (0x1000, 8), (usize::MAX - 4, 8), (0x1000, usize::MAX)]
        {
            let start = std::ptr::without_provenance_mut(address);
            assert!(register(start, len_bytes).is_err(), "{len_bytes} at {address:#x}");
        }
    }

    #[test]
    fn a_registration_covers_what_it_says() {
        let mut memory = [0_u8; 64];
        let start = memory.as_mut_ptr();
        let handle = register(start.cast(), 32).unwrap();
        assert!(Region::of(&desc(start, 32, handle), "sbuf").is_ok());
        assert!(Region::of(&desc(start, 0, handle), "sbuf").is_ok());
        assert!(Region::of(&desc(start.wrapping_add(1), 32, handle), "sbuf").is_err());
        assert!(Region::of(&desc(start, 64, std::ptr::null_mut()), "sbuf").is_ok());
        deregister(handle).unwrap();
        assert!(deregister(handle).is_err());
        assert!(Region::of(&desc(start, 64, handle), "sbuf").is_ok(), "it says nothing any more");
        let never_given_out = handle.wrapping_byte_add(1 << 20);
        let error = Region::of(&desc(start, 32, never_given_out), "sbuf").unwrap_err();
        assert!(error.reason.contains("is no registration"), "{error}");
        deregister(std::ptr::null_mut()).unwrap();
    }

    #[test]
    fn what_is_no_host_memory_is_refused() {
        let mut memory = [0_u8; 8];
        let on_device =
            DataDesc { mem_type: 1, ..desc(memory.as_mut_ptr(), 8, std::ptr::null_mut()) };
        assert!(Region::of(&on_device, "sbuf").is_err());
        assert!(Region::of_any(&on_device, "sbuf").is_ok());
    }
}
