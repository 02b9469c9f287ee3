//! How the ranks of each host come to share memory, or why they do not.
//!
//! Collective: every rank takes part in every exchange, and the outcome is the same on all.

use super::agreement::{Unavailable, agree};
use crate::bootstrap::{Bootstrap, allgather_texts};
use crate::context::Context;
use crate::placement::Placement;
use tributary_shm_collectives::{
    Attachment, HostGroup, Mailbox, MailboxName, Offer, SegmentHandle,
};

/// What a rank tells the others about its segment: a leader its offer, the others their mailboxes.
const CARD_BYTES: usize = Offer::BYTES + MailboxName::BYTES;

/// Maps one segment on every host with more than one rank. Beside it: what this communicator has
/// to do without, and why, for the report.
pub(super) fn share_memory(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
) -> Result<(Option<HostGroup>, Vec<String>), Unavailable> {
    let mut notes = Vec::new();
    let attached = match attach_by_offer(bootstrap, placement) {
        // Some sandboxes forbid reaching into another process's descriptors; a socket still works.
        Err(Unavailable::Rank { rank, problem }) => {
            notes.push(format!("segment handed over a socket: rank {rank}: {problem}"));
            attach_by_delivery(bootstrap, placement)?
        }
        outcome => outcome?,
    };
    let group = attached.map(|attachment| {
        let attachment = if context.settings.cross_memory {
            attachment
        } else {
            attachment.without_direct_access()
        };
        attachment.settle(context.crowd(placement.local_ranks()))
    });
    let group = agree(bootstrap, group.transpose().map_err(|error| error.to_string()))?;
    // All ranks have settled, so each host's ranks say the same.
    let denied = group.as_ref().and_then(|group| group.direct_access().err());
    let denied = denied.map_or(String::new(), |denied| denied.to_string());
    let denied = allgather_texts(bootstrap, &denied)?;
    if let Some(rank) = denied.iter().position(|denied| !denied.is_empty()) {
        let host = &placement.hosts[placement.host_of[rank] as usize];
        notes.push(format!("long vectors staged on {host}: {}", denied[rank]));
    }
    Ok((group, notes))
}

/// The usual method: through `/proc`.
fn attach_by_offer(
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
) -> Result<Option<Attachment>, Unavailable> {
    let made = agree(bootstrap, make_offer(placement))?;
    let cards = exchange_cards(bootstrap, made.as_ref(), None)?;
    let attached = leaders_offer(&cards, placement).and_then(|offer| {
        offer
            .map(|offer| HostGroup::attach(&offer, placement.local_rank(), placement.local_ranks()))
            .transpose()
            .map_err(|error| error.to_string())
    });
    // The handle lives until every rank has attached.
    let attached = agree(bootstrap, attached);
    drop(made);
    attached
}

/// The other method: leaders hand their segments over a socket.
fn attach_by_delivery(
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
) -> Result<Option<Attachment>, Unavailable> {
    let receives = placement.local_ranks() > 1 && !placement.is_leader();
    let mailbox = receives.then(Mailbox::new).transpose().map_err(|error| error.to_string());
    let outcome = make_offer(placement).and_then(|made| Ok((made, mailbox?)));
    let (made, mailbox) = agree(bootstrap, outcome)?;
    let cards = exchange_cards(bootstrap, made.as_ref(), mailbox.as_ref())?;
    let delivered = made.as_ref().map_or(Ok(()), |(_, handle)| deliver(handle, &cards, placement));
    agree(bootstrap, delivered)?;
    let (local_rank, ranks) = (placement.local_rank(), placement.local_ranks());
    let attached = match (&made, &mailbox) {
        (Some((offer, handle)), _) => {
            Some(HostGroup::attach_with_handle(offer, handle, local_rank, ranks))
        }
        (None, Some(mailbox)) => match leaders_offer(&cards, placement) {
            Ok(offer) => {
                offer.map(|offer| HostGroup::attach_delivered(&offer, mailbox, local_rank, ranks))
            }
            Err(problem) => return agree(bootstrap, Err(problem)),
        },
        (None, None) => None,
    };
    agree(bootstrap, attached.transpose().map_err(|error| error.to_string()))
}

fn make_offer(placement: &Placement) -> Result<Option<(Offer, SegmentHandle)>, String> {
    let ranks = placement.local_ranks();
    let makes_offer = placement.is_leader() && ranks > 1;
    makes_offer.then(|| HostGroup::offer(ranks)).transpose().map_err(|error| error.to_string())
}

/// Every rank's card, one after the other.
fn exchange_cards(
    bootstrap: &mut dyn Bootstrap,
    made: Option<&(Offer, SegmentHandle)>,
    mailbox: Option<&Mailbox>,
) -> Result<Vec<u8>, Unavailable> {
    let mut card = [0; CARD_BYTES];
    if let Some((offer, _)) = made {
        card[..Offer::BYTES].copy_from_slice(&offer.to_bytes());
    }
    if let Some(mailbox) = mailbox {
        card[Offer::BYTES..].copy_from_slice(&mailbox.name().0);
    }
    let mut cards = vec![0; CARD_BYTES * bootstrap.size() as usize];
    bootstrap.allgather(&card, &mut cards)?;
    Ok(cards)
}

/// The offer of this host's leader; none if this rank is alone on its host.
fn leaders_offer(cards: &[u8], placement: &Placement) -> Result<Option<Offer>, String> {
    if placement.local_ranks() == 1 {
        return Ok(None);
    }
    let leader = placement.leaders[placement.host() as usize] as usize;
    let bytes = cards[leader * CARD_BYTES..].first_chunk();
    let bytes = bytes.ok_or_else(|| "a leader's offer was cut".to_owned())?;
    Offer::from_bytes(bytes).map(Some).map_err(|error| error.to_string())
}

/// Hands the segment to every other rank of this host.
fn deliver(handle: &SegmentHandle, cards: &[u8], placement: &Placement) -> Result<(), String> {
    let here = |rank: &usize| placement.host_of[*rank] == placement.host();
    let others = (0..placement.host_of.len()).filter(here);
    for rank in others.filter(|rank| *rank as u32 != placement.rank) {
        let name = cards[rank * CARD_BYTES + Offer::BYTES..].first_chunk();
        let name = *name.ok_or_else(|| format!("the card of rank {rank} was cut"))?;
        handle.deliver(MailboxName(name)).map_err(|error| format!("to rank {rank}: {error}"))?;
    }
    Ok(())
}
