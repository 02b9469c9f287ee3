//! How a communicator comes to trees with different roots, for stripes of its long vectors.
//!
//! One that is refused is no failure: the communicator goes on with those that it has, and the
//! report says why there are no more.

use tributary_wire::Rail;
use tributary_wire::control::GroupGrant;

use super::setup::{Unavailable, enter_tree, request_group};
use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::seat::Seat;
use crate::stripes::{HOSTS_MIN, Stripes};
use crate::trees::Trees;

/// What rank 0 wants, for all.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) trees: u32,
    pub(super) min_bytes: u64,
    /// Shortest vector that is streamed; none if none is.
    pub(super) stream_min_bytes: Option<u64>,
}

/// Takes places on further rails, next to the one of `first`; `trees` are a leader's.
pub(super) fn join_rails(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &mut Seat,
    label: &str,
    wish: Wish,
    first: &GroupGrant,
    trees: &mut Option<Trees>,
) -> Result<(), Unavailable> {
    let hosts = seat.placement.hosts.len();
    let mut stripes = Stripes {
        asked: wish.trees,
        trees: 1,
        min_bytes: wish.min_bytes,
        note: why_one(hosts, first).unwrap_or_default(),
    };
    while stripes.note.is_empty() && stripes.trees < wish.trees {
        let rail = Rail(u8::try_from(stripes.trees).expect("a setting bounds them"));
        match join_rail(context, bootstrap, seat, label, wish, rail, trees) {
            Ok(()) => stripes.trees += 1,
            Err(Unavailable::Bootstrap(error)) => return Err(error.into()),
            Err(refused) => stripes.note = refused.to_string(),
        }
    }
    if let Some(trees) = trees {
        trees.cut_by(stripes.clone());
    }
    seat.stripes = stripes;
    Ok(())
}

/// Why a communicator asks for no further tree.
fn why_one(hosts: usize, first: &GroupGrant) -> Option<String> {
    if hosts < HOSTS_MIN {
        return Some(format!("it has {hosts} hosts; stripes begin at {HOSTS_MIN}"));
    }
    // It reads at one root.
    first.outsider.as_ref().map(|_| "results go to a process outside the group".to_owned())
}

fn join_rail(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
    label: &str,
    wish: Wish,
    rail: Rail,
    trees: &mut Option<Trees>,
) -> Result<(), Unavailable> {
    let grant = request_group(context, bootstrap, seat, label, rail)?;
    let member = enter_tree(context, bootstrap, seat, &grant, wish.stream_min_bytes)?;
    if let (Some(trees), Some(member)) = (trees, member) {
        trees.push(member, grant.endpoints.iter().map(|endpoint| endpoint.endpoint).collect());
    }
    Ok(())
}
