//! Bytes as floats: where they lie if their address is aligned for that, else by way of a copy.

use std::borrow::Cow;

use tributary_exact::Element;

/// The values at an address that is aligned for them.
pub(crate) fn as_values<E: Element>(bytes: &[u8]) -> Option<&[E]> {
    // SAFETY: every bit pattern is a value.
    let (before, values, after) = unsafe { bytes.align_to::<E>() };
    (before.is_empty() && after.is_empty()).then_some(values)
}

/// The values at any address.
pub fn read_values<E: Element>(bytes: &[u8]) -> Cow<'_, [E]> {
    as_values(bytes).map_or_else(|| Cow::Owned(copy_values(bytes)), Cow::Borrowed)
}

/// Changes the values at any address.
pub fn change_values<E: Element>(bytes: &mut [u8], change: impl FnOnce(&mut [E])) {
    // SAFETY: every bit pattern is a value, and every value has only bytes that are set.
    if let ([], values, []) = unsafe { bytes.align_to_mut::<E>() } {
        return change(values);
    }
    let mut values: Vec<E> = copy_values(bytes);
    change(&mut values);
    for (bytes, value) in bytes.chunks_exact_mut(size_of::<E>()).zip(values) {
        bytes.copy_from_slice(&value.to_bits_u64().to_le_bytes()[..size_of::<E>()]);
    }
}

fn copy_values<E: Element>(bytes: &[u8]) -> Vec<E> {
    let value = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        E::from_bits_u64(u64::from_le_bytes(bits))
    };
    bytes.chunks_exact(size_of::<E>()).map(value).collect()
}
