//! Accesses to what program and process both change. With the feature `interleavings` a test may follow them, and let
//! other threads run in between; without it, nothing happens.

#[cfg(feature = "interleavings")]
use std::cell::RefCell;

/// What a thread is about to do.
#[cfg(feature = "interleavings")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To read or change what others change.
    Access,
    /// To look again, because it can't go on before another thread has done something.
    Wait,
}

#[cfg(feature = "interleavings")]
type Follower = Box<dyn FnMut(Step)>;

#[cfg(feature = "interleavings")]
thread_local! {
    static FOLLOWER: RefCell<Option<Follower>> = const { RefCell::new(None) };
}

/// Has every step of this thread followed from now on.
#[cfg(feature = "interleavings")]
pub fn follow(follower: impl FnMut(Step) + 'static) {
    FOLLOWER.set(Some(Box::new(follower)));
}

#[cfg(feature = "interleavings")]
fn tell(step: Step) {
    FOLLOWER.with_borrow_mut(|follower| {
        if let Some(follower) = follower {
            follower(step);
        }
    });
}

/// Before an access.
pub(crate) fn step() {
    #[cfg(feature = "interleavings")]
    tell(Step::Access);
}

/// Before looking again at what only another thread changes.
pub(crate) fn wait() {
    std::hint::spin_loop();
    #[cfg(feature = "interleavings")]
    tell(Step::Wait);
}
