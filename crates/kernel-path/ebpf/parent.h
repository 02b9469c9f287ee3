/* The edge to the parent: contributions go up, results come down. The root has none.
 *
 * The program has no clock, so it repeats nothing by itself: the children's repeats make it repeat. If nothing is
 * answered, the process takes the segment: it measures, and speaks over the link if need be.
 */
#pragma once

#include "answers.h"

/* The attempt from which on a child's repeat of what was sent upward is left to the process, if the parent has not
 * acked what was sent, and if it has: then it waits for others, for half a second by then. */
enum { ATTEMPTS_UNANSWERED_MAX = 3, ATTEMPTS_MAX = 12 };

INLINE int is_root(const struct place *place)
{
	return !place->parent.edge.peer_address;
}

INLINE int is_route_known(const struct parent *parent)
{
	return read_shared(&parent->route) == ROUTE_KNOWN;
}

/* Learns the route to the parent from what came from there. */
INLINE void learn_route(struct parent *parent, const struct workspace *work)
{
	if (read_shared(&parent->route) != ROUTE_UNKNOWN ||
	    compare_and_swap(&parent->route, ROUTE_UNKNOWN, ROUTE_WRITING) != ROUTE_UNKNOWN)
		return;
	__builtin_memcpy(parent->hardware, work->in.envelope.hardware_target, 12);
	parent->interface = work->interface;
	compare_and_swap(&parent->route, ROUTE_WRITING, ROUTE_KNOWN);
}

/* Sends the parent what all contributions make, in this packet, which has the right length. */
INLINE int forward(struct packet *packet, struct workspace *work, struct place *place,
		   struct slot *slot, u8 attempt)
{
	struct parent *parent = &place->parent;
	u64 word;

	begin_segment(work, slot, KIND_REQUEST);
	work->out.frame.attempt = attempt;
	write_hardware(&work->out.envelope, parent->hardware);
	if (!write_segment(packet, work, &parent->edge, slot, parent->child))
		return VERDICT_DROP;
	/* If the slot does not wait any more, what was written may be the result, or another segment's. */
	word = read_word_in_order(slot);
	if (!holds(word, work->in.frame.sequence) || word_phase(word) != PHASE_FORWARDED)
		return VERDICT_DROP;
	return send_packet(parent->interface);
}

/* Whether to go on with a segment that was sent upward, whose contribution comes again. */
INLINE int is_way_good(const struct place *place, const struct slot *slot, const struct frame *frame)
{
	return is_route_known(&place->parent) &&
	       (frame->attempt < ATTEMPTS_UNANSWERED_MAX ||
		(frame->attempt < ATTEMPTS_MAX && is_acked(&slot->forwarded, frame->sequence)));
}

/* Acks a contribution that comes again while its slot waits for the parent. The first of each attempt goes up
 * again: what was sent, or its result, may be lost. */
INLINE int forward_again(struct packet *packet, struct workspace *work, struct place *place,
			 struct slot *slot)
{
	u8 attempt = work->in.frame.attempt;
	int is_first = is_same_segment(&slot->segment, &work->in.frame) &&
		       note_attempt(&slot->forwarded, work->in.frame.sequence, attempt);

	if (!write_ack(packet, work, place, slot))
		return VERDICT_DROP;
	if (!is_first)
		return send_packet(work->interface);
	send_copy(packet, work->interface);
	if (change_length(packet, HEAD_BYTES + work->payload_bytes) < 0)
		return VERDICT_DROP;
	return forward(packet, work, place, slot, attempt);
}

/* Whether a frame is the result of a segment. */
INLINE int is_result_of(const struct frame *frame, const struct segment *segment)
{
	return !frame->reason && frame->target_kind == TARGET_ALL && !frame->target_member &&
	       is_same_segment(segment, frame) && frame->follows == segment->has_data &&
	       frame->payload_bytes == segment->elements * element_bytes(segment->datatype);
}

/* Writes the parent's result into a slot that waits for it. */
INLINE int store_result(struct packet *packet, struct workspace *work, struct slot *slot, u64 word)
{
	int is_read;

	if (!is_result_of(&work->in.frame, &slot->segment) ||
	    !change_phase(slot, word, PHASE_WRITING))
		return 0;
	is_read = read_payload(packet, slot->result, work->payload_bytes);
	/* Nobody else changes the word of a slot that is being written. */
	change_phase(slot, with_phase(word, PHASE_WRITING), is_read ? PHASE_DONE : PHASE_FORWARDED);
	return is_read;
}

/* Takes a result or an ack from the parent. What is about the process's own segments passes up to it. */
INLINE int take_from_parent(struct packet *packet, struct workspace *work, struct place *place,
			    struct counters *counters)
{
	u32 sequence = work->in.frame.sequence;
	struct slot *slot = slot_of(place, sequence);
	u64 word;
	u32 spared = 0;

	learn_route(&place->parent, work);
	if (!slot)
		return VERDICT_PASS;
	word = read_word(slot);
	if (is_past(word, sequence) || (holds(word, sequence) && is_done(word)))
		return VERDICT_DROP;
	if (!holds(word, sequence) || word_phase(word) != PHASE_FORWARDED)
		return VERDICT_PASS;
	if (work->in.frame.kind == KIND_ACK) {
		note_ack(&slot->forwarded, sequence);
		return VERDICT_DROP;
	}
	if (!store_result(packet, work, slot, word))
		return VERDICT_PASS;
	advance_floor(place);
	COUNT(counters, completed, 1);
	begin_answer(work);
	begin_result(work, place, slot);
	if (work->payload_bytes <= place->multicast.longest_bytes)
		spared = read_shared_number(&place->multicast.spared);
	return copy_results(packet, work, place, slot, spared);
}
