/* An aggregation node in the packet path: single-packet segments of groups that the process has
 * entered into the tables are gathered, reduced and answered here. All else passes up unchanged.
 */
#include "parent.h"

INLINE struct place *place_of(const struct frame *frame)
{
	u64 key = (u64)frame->epoch << 32 | frame->group;
	u32 *index = lookup(MAP_DIRECTORY, &key);
	struct place *place;

	if (!index)
		return 0;
	place = lookup(MAP_PLACES, index);
	return place && place->is_on ? place : 0;
}

/* Whether a frame is for this aggregator's end of an edge. Others are on their way to other aggregators, of the same group
 * perhaps. */
INLINE int is_for(const struct packet_head *in, const struct edge *edge)
{
	return in->envelope.target == edge->own_address && in->envelope.target_port == edge->own_port;
}

/* Whether a frame shows an edge's capability, and comes from its other end. */
INLINE int is_of(const struct packet_head *in, const struct edge *edge)
{
	/* Without a branch, so that time tells nothing about a wrong capability. */
	u64 difference = (in->frame.capability[0] ^ edge->capability[0]) |
			 (in->frame.capability[1] ^ edge->capability[1]);

	return !difference && in->envelope.source == edge->peer_address &&
	       in->envelope.source_port == edge->peer_port;
}

/* Whether the program takes such a segment. What is wrong with any other, the process says. */
INLINE int is_taken(const struct frame *frame, const struct place *place)
{
	if (frame->reason || frame->target_kind != TARGET_ALL || frame->target_member ||
	    frame->behind || frame->payload_bytes > place->payload_max_bytes)
		return 0;
	if (frame->operator_code == OPERATOR_BARRIER)
		return frame->datatype == DATATYPE_U8 && !frame->elements && !frame->follows &&
		       !frame->payload_bytes;
	return is_defined(frame->operator_code, frame->datatype) && frame->follows == 1 &&
	       frame->elements && frame->elements <= PAYLOAD_BYTES_MAX &&
	       frame->payload_bytes == frame->elements * element_bytes(frame->datatype);
}

/* Whether the program does itself what follows when all contributions are there. */
INLINE int is_finished_here(const struct place *place, const struct segment *segment)
{
	return (is_root(place) || is_route_known(&place->parent)) &&
	       is_folded_here(segment->operator_code, segment->datatype, segment->elements,
			      place->children);
}

/* Fills a lane that was claimed. If it was the last, hands the result out or the sum up, or leaves the packet to
 * the process: it tells that everything is gathered. */
INLINE int contribute(struct packet *packet, struct workspace *work, struct place *place,
		      struct slot *slot, struct counters *counters)
{
	u32 child = work->in.frame.child & (CHILDREN_MAX - 1);
	u32 sequence = work->in.frame.sequence;
	struct lane *lane = &slot->lanes[child];
	u64 word;
	u32 nacks;
	int is_last;

	if (!read_payload(packet, lane->payload, work->payload_bytes)) {
		give_back_lane(slot, sequence, child);
		return VERDICT_PASS;
	}
	__builtin_memcpy(lane->hardware, work->in.envelope.hardware_target, 12);
	lane->interface = work->interface;
	lane->mark = new_mark(sequence, work->in.frame.attempt);
	/* Once all lanes are filled, nobody else changes the word. */
	word = count_filled(slot, sequence);
	COUNT(counters, taken, 1);
	is_last = word_filled(word) == place->children;
	if (is_last && !is_finished_here(place, &slot->segment)) {
		change_phase(slot, word, PHASE_GATHERED);
		COUNT(counters, gathered, 1);
		return VERDICT_PASS;
	}
	begin_answer(work);
	nacks = send_nacks(packet, work, place, child);
	if (nacks)
		COUNT(counters, nacks, nacks);
	if (!is_last)
		return VERDICT_DROP;
	fold_lanes(place, slot, work->payload_bytes);
	if (is_root(place)) {
		change_phase(slot, word, PHASE_DONE);
		advance_floor(place);
		COUNT(counters, completed, 1);
	} else {
		slot->forwarded = new_mark(sequence, 0);
		change_phase(slot, word, PHASE_FORWARDED);
	}
	if (nacks && change_length(packet, HEAD_BYTES + work->payload_bytes) < 0)
		return VERDICT_DROP;
	if (!is_root(place))
		return forward(packet, work, place, slot, 0);
	begin_result(work, place, slot);
	if (!use_multicast(place, work->payload_bytes))
		return copy_results(packet, work, place, slot, 0);
	COUNT(counters, multicasts, 1);
	return multicast_result(packet, work, place, slot);
}

/* Answers a contribution that comes again with the result. */
INLINE int answer_again(struct packet *packet, struct workspace *work, struct place *place,
			struct slot *slot)
{
	u32 result_bytes;

	begin_answer_again(work, slot);
	if (!holds(read_word_in_order(slot), work->in.frame.sequence))
		return VERDICT_DROP;
	result_bytes = slot->segment.elements * element_bytes(slot->segment.datatype);
	if (result_bytes != work->payload_bytes) {
		if (result_bytes > PAYLOAD_BYTES_MAX ||
		    change_length(packet, HEAD_BYTES + result_bytes) < 0)
			return VERDICT_DROP;
		work->payload_bytes = result_bytes;
	}
	return send_again(packet, work, place, slot, work->in.frame.child & (CHILDREN_MAX - 1));
}

/* Takes a request of a child of this place. */
INLINE int take(struct packet *packet, struct workspace *work, struct place *place,
		struct counters *counters)
{
	const struct frame *frame = &work->in.frame;
	struct slot *slot = slot_of(place, frame->sequence);
	enum outcome outcome;

	if (!slot)
		return VERDICT_PASS;
	outcome = claim(place, slot, frame, frame->child);
	/* While the process ends the service to a group, it changes the slots that outcomes are judged by. */
	if ((outcome == OUTCOME_REFUSED || outcome == OUTCOME_PAST) &&
	    !read_shared_number(&place->is_on))
		outcome = OUTCOME_OF_PROCESS;
	if (outcome == OUTCOME_FORWARDED && !is_way_good(place, slot, frame))
		outcome = OUTCOME_OF_PROCESS;
	switch (outcome) {
	case OUTCOME_CLAIMED:
		return contribute(packet, work, place, slot, counters);
	case OUTCOME_WAITING:
		COUNT(counters, repeats, 1);
		COUNT(counters, acks, 1);
		return write_ack(packet, work, place, slot) ? send_packet(work->interface) :
							      VERDICT_DROP;
	case OUTCOME_ANSWERED:
		COUNT(counters, repeats, 1);
		return answer_again(packet, work, place, slot);
	case OUTCOME_FORWARDED:
		COUNT(counters, repeats, 1);
		COUNT(counters, acks, 1);
		return forward_again(packet, work, place, slot);
	case OUTCOME_PAST:
		COUNT(counters, repeats, 1);
		return VERDICT_DROP;
	case OUTCOME_REFUSED:
		COUNT(counters, refused, 1);
		return VERDICT_DROP;
	default:
		COUNT(counters, passed, 1);
		return VERDICT_PASS;
	}
}

#ifdef USER_SPACE
int aggregate(struct packet *packet)
#else
SECTION("classifier") int aggregate(struct packet *packet)
#endif
{
	u32 only = 0;
	struct workspace *work = lookup(MAP_WORKSPACES, &only);
	struct counters *counters = lookup(MAP_COUNTERS, &only);
	const struct edge *edge;
	struct place *place;
	u32 child;
	int is_request, is_edge;

	if (!work || !counters || !read_head(packet, work))
		return VERDICT_PASS;
	place = place_of(&work->in.frame);
	if (!place)
		return VERDICT_PASS;
	child = work->in.frame.child;
	is_request = work->in.frame.kind == KIND_REQUEST;
	if (is_request) {
		is_edge = child < place->children && child < CHILDREN_MAX;
		edge = &place->edges[is_edge ? child & (CHILDREN_MAX - 1) : 0];
	} else {
		is_edge = child == place->parent.child;
		edge = &place->parent.edge;
	}
	if ((!is_request && is_root(place)) || !is_for(&work->in, edge))
		return VERDICT_PASS;
	if (!is_edge || !is_of(&work->in, edge)) {
		COUNT(counters, refused, 1);
		return VERDICT_DROP;
	}
	if (is_request && !is_taken(&work->in.frame, place)) {
		COUNT(counters, passed, 1);
		return VERDICT_PASS;
	}
	work->checksum = check_sum(packet, work);
	if (work->checksum == CHECKSUM_WRONG) {
		COUNT(counters, damaged, 1);
		return VERDICT_DROP;
	}
	if (!is_request)
		return take_from_parent(packet, work, place, counters);
	return take(packet, work, place, counters);
}

#ifndef USER_SPACE
SECTION("license") char program_license[] = "Apache-2.0";
#endif
