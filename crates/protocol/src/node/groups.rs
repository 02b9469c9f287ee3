//! An aggregator's groups, by number.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tributary_wire::GroupId;

use super::group::Group;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Indexed by group id: the manager keeps those small and dense.
    groups: Vec<Option<Box<Group>>>,
}

impl Groups {
    pub(super) fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// The group of a bound port, or one that waits for a lock.
    ///
    /// # Panics
    /// If there is no such group.
    pub(super) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id.0 as usize].as_deref_mut().expect("the group is installed")
    }

    /// Those that are installed, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().flatten().map(|group| &**group)
    }

    /// Those that are installed, in the order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().flatten().map(|group| &mut **group)
    }

    /// All numbers that a group has had.
    pub(super) fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u32).map(GroupId)
    }

    pub(super) fn insert(&mut self, group: Group) {
        let index = group.id().0 as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, || None);
        }
        self.groups[index] = Some(Box::new(group));
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Box<Group> {
        self.groups[id.0 as usize].take().expect("only an installed group is removed")
    }
}
