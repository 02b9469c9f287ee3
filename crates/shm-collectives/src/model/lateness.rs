//! Nobody is told who is late: a hint for people, on which nothing depends.

use std::time::Duration;

use super::ring::{Awaited, Rings};

pub struct Late;

#[derive(Default)]
pub(super) struct Lateness {}

impl Lateness {
    pub(super) fn watch(&mut self, _: Duration, _: impl FnMut(Late) + Send + 'static) {}

    pub(super) fn note(&mut self, _: &Rings, _: Awaited) {}

    pub(super) fn note_other_wait(&self, _: &Rings) {}
}
