//! Handles: what C holds instead of pointers.
//!
//! A handle names a slot of a table and how often the slot was used before, so one that was never given
//! out, or was freed, is found to be none, and is never followed.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What C holds. Its bits, from the top: 8 of the table's tag, 24 of the slot's generation, 32 of its index.
pub(crate) type Handle = *mut c_void;

const GENERATION_MASK: u32 = (1 << 24) - 1;

/// All live objects of one kind.
pub(crate) struct Table<T> {
    /// Tells handles of this table from those of others. Not 0, so no handle is null, or any address.
    tag: u8,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

/// What a handle says.
#[derive(Clone, Copy)]
struct HandleParts {
    generation: u32,
    index: u32,
}

impl<T> Table<T> {
    pub(crate) const fn new(tag: u8) -> Self {
        assert!(tag != 0, "a tag tells handles from null");
        Self { tag, slots: Mutex::new(Slots { all: Vec::new(), free: Vec::new() }) }
    }

    /// Gives an object a handle.
    pub(crate) fn insert(&self, object: Arc<T>) -> Handle {
        let mut slots = self.lock();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.all.push(Slot { generation: 0, object: None });
            u32::try_from(slots.all.len() - 1).expect("fewer handles than memory has room for")
        });
        let slot = &mut slots.all[index as usize];
        slot.object = Some(object);
        let bits = u64::from(self.tag) << 56 | u64::from(slot.generation) << 32 | u64::from(index);
        std::ptr::without_provenance_mut(bits as usize)
    }

    /// The object, if the handle is one of this table that was not freed.
    pub(crate) fn find(&self, handle: Handle) -> Option<Arc<T>> {
        let place = self.place(handle)?;
        let slots = self.lock();
        let slot = slots.all.get(place.index as usize)?;
        slot.object.as_ref().filter(|_| slot.generation == place.generation).cloned()
    }

    /// Frees a handle. What it stood for, if it was one.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let place = self.place(handle)?;
        let mut slots = self.lock();
        let slot = slots.all.get_mut(place.index as usize)?;
        if slot.generation != place.generation {
            return None;
        }
        let object = slot.object.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slots.free.push(place.index);
        Some(object)
    }

    /// Whether the handle was given out and freed.
    pub(crate) fn was_freed(&self, handle: Handle) -> bool {
        let Some(place) = self.place(handle) else { return false };
        let slots = self.lock();
        let slot = slots.all.get(place.index as usize);
        slot.is_some_and(|slot| place.generation < slot.generation)
    }

    fn place(&self, handle: Handle) -> Option<HandleParts> {
        let bits = handle.addr() as u64;
        let generation = (bits >> 32) as u32 & GENERATION_MASK;
        (bits >> 56 == u64::from(self.tag))
            .then_some(HandleParts { generation, index: bits as u32 })
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_live_handles_of_the_same_table_are_found() {
        let (one, other) = (Table::new(1), Table::new(2));
        let handle = one.insert(Arc::new(7));
        assert!(!handle.is_null());
        assert_eq!(one.find(handle).as_deref(), Some(&7));
        assert!(other.insert(Arc::new(8)) != handle);
        assert_eq!(other.find(handle), None);
        assert!(!one.was_freed(handle));
        assert_eq!(one.remove(handle).as_deref(), Some(&7));
        assert_eq!((one.find(handle), one.remove(handle)), (None, None));
        let next = one.insert(Arc::new(9));
        assert_eq!((one.find(handle), one.find(next).as_deref()), (None, Some(&9)));
        assert!(one.was_freed(handle) && !one.was_freed(next));
    }

    #[test]
    fn nothing_else_is_a_handle() {
        let table = Table::new(3);
        table.insert(Arc::new(()));
        let on_stack = 0_u64;
        for address in
            [0, 1, usize::MAX, (&raw const on_stack).addr(), 3 << 56 | 1, 3 << 56 | 1 << 32]
        {
            let handle = std::ptr::without_provenance_mut(address);
            assert_eq!(
                (table.find(handle), table.was_freed(handle)),
                (None, false),
                "{address:#x}"
            );
        }
    }
}
