/* Answers: results, acks and nacks, written over the packet that caused them. */
#pragma once

#include "packet.h"
#include "slots.h"

/* Fills in what all answers to a request have alike. */
INLINE void begin_answer(struct workspace *work)
{
	work->out.envelope = (struct envelope){
		.protocol = PROTOCOL_IPV4,
		.version_and_length = IPV4_NO_OPTIONS,
		.fragment = DO_NOT_FRAGMENT,
		.hops = HOPS,
		.transport = UDP,
	};
	work->out.frame = (struct frame){
		.magic = FRAME_MAGIC,
		.version = FRAME_VERSION,
		.group = work->in.frame.group,
		.epoch = work->in.frame.epoch,
		.sequence = work->in.frame.sequence,
	};
	work->payload_sum = 0;
}

INLINE void write_hardware(struct envelope *envelope, const u8 *hardware_of_request)
{
	__builtin_memcpy(envelope->hardware_target, hardware_of_request + 6, 6);
	__builtin_memcpy(envelope->hardware_source, hardware_of_request, 6);
}

/* The hardware address of everybody at a multicast address (RFC 1112, section 6.4). */
INLINE void write_multicast_target(struct envelope *envelope, u32 address)
{
	const u8 *bytes = (const u8 *)&address;

	envelope->hardware_target[0] = 0x01;
	envelope->hardware_target[1] = 0x00;
	envelope->hardware_target[2] = 0x5e;
	envelope->hardware_target[3] = bytes[1] & 0x7f;
	envelope->hardware_target[4] = bytes[2];
	envelope->hardware_target[5] = bytes[3];
}

/* Addresses an answer to a child or to all, and writes its lengths and checksums. */
INLINE void address(struct workspace *work, const struct edge *edge, u32 child)
{
	struct envelope *envelope = &work->out.envelope;
	struct frame *frame = &work->out.frame;

	frame->child = child;
	frame->capability[0] = edge->capability[0];
	frame->capability[1] = edge->capability[1];
	envelope->datagram_bytes = SWAPPED_16(PORT_BYTES + FRAME_BYTES + frame->payload_bytes);
	envelope->total_bytes =
		SWAPPED_16(ADDRESS_BYTES + PORT_BYTES + FRAME_BYTES + frame->payload_bytes);
	envelope->source = edge->own_address;
	envelope->target = edge->peer_address;
	envelope->source_port = edge->own_port;
	envelope->target_port = edge->peer_port;
	envelope->header_checksum = 0;
	envelope->header_checksum =
		~folded((u32)sum_of(&envelope->version_and_length, ADDRESS_BYTES, 0));
	envelope->checksum = 0;
	if (work->checksum == CHECKSUM_PARTIAL) {
		envelope->checksum = folded(pseudo_header_sum(envelope));
	} else if (work->checksum == CHECKSUM_FULL) {
		envelope->checksum = ~datagram_sum(&work->out, work->payload_sum);
		if (!envelope->checksum)
			envelope->checksum = 0xffff;
	}
}

/* Makes the packet, which has the length of a frame without payload, an ack or a nack. */
NOINLINE int write_notice(struct packet *packet, struct workspace *work, struct place *place, u32 kind,
			  u32 sequence)
{
	u32 child = work->in.frame.child & (CHILDREN_MAX - 1);

	work->out.frame.kind = kind;
	work->out.frame.sequence = sequence;
	work->out.frame.attempt = kind == KIND_ACK ? work->in.frame.attempt : 0;
	write_hardware(&work->out.envelope, work->in.envelope.hardware_target);
	address(work, &place->edges[child], child);
	return store_bytes(packet, 0, FIRST_BYTE(&work->out), HEAD_BYTES) >= 0;
}

/* Begins the answer to a contribution that comes again. */
INLINE void begin_answer_again(struct workspace *work, struct slot *slot)
{
	u32 child = work->in.frame.child & (CHILDREN_MAX - 1);

	note_attempt(&slot->lanes[child].mark, work->in.frame.sequence, work->in.frame.attempt);
	begin_answer(work);
}

/* Makes the packet of a contribution that comes again an ack: its slot waits. */
INLINE int write_ack(struct packet *packet, struct workspace *work, struct place *place,
		     struct slot *slot)
{
	begin_answer_again(work, slot);
	return change_length(packet, HEAD_BYTES) >= 0 &&
	       write_notice(packet, work, place, KIND_ACK, work->in.frame.sequence);
}

struct nacks {
	struct packet *packet;
	struct workspace *work;
	struct place *place;
	u32 first;
};

static long send_nack(u32 index, void *context)
{
	struct nacks *nacks = context;

	if (!write_notice(nacks->packet, nacks->work, nacks->place, KIND_NACK, nacks->first + index))
		return 1;
	send_copy(nacks->packet, nacks->work->interface);
	return 0;
}

/* Notes that a child's request has come, and nacks every earlier one that has not. Returns how many;
 * the packet then has the length of one. */
INLINE u32 send_nacks(struct packet *packet, struct workspace *work, struct place *place, u32 child)
{
	struct edge *edge = &place->edges[child & (CHILDREN_MAX - 1)];
	u32 sequence = work->in.frame.sequence;
	struct nacks nacks = { .packet = packet, .work = work, .place = place, .first = edge->next };
	u32 gap = sequence - nacks.first;

	if (gap >= 1u << 31)
		return 0;
	edge->next = sequence + 1;
	if (!gap || gap > place->slot_mask + 1 || gap > SLOTS_PER_PLACE)
		return 0;
	if (change_length(packet, HEAD_BYTES) < 0)
		return 0;
	repeat(gap, send_nack, &nacks);
	return gap;
}

/* Fills in what a segment's frames have alike, up and down. */
INLINE void begin_segment(struct workspace *work, struct slot *slot, u32 kind)
{
	struct frame *frame = &work->out.frame;

	frame->kind = kind;
	frame->follows = slot->segment.has_data;
	frame->payload_bytes = work->payload_bytes;
	frame->operation = slot->segment.operation;
	frame->segment = slot->segment.number;
	frame->sequence = work->in.frame.sequence;
	frame->elements = slot->segment.elements;
	frame->target_kind = TARGET_ALL;
	frame->datatype = slot->segment.datatype;
	frame->operator_code = slot->segment.operator_code;
	if (work->checksum == CHECKSUM_FULL)
		work->payload_sum = payload_sum(slot->result, work->payload_bytes);
}

INLINE void begin_result(struct workspace *work, struct place *place, struct slot *slot)
{
	begin_segment(work, slot, KIND_RESULT);
	work->out.frame.behind = behind(place, work->out.frame.sequence);
}

/* Makes the packet, which has the right length, the segment for a child, for all, or for the parent. */
NOINLINE int write_segment(struct packet *packet, struct workspace *work, const struct edge *edge,
			  struct slot *slot, u32 child)
{
	u32 payload_bytes = work->payload_bytes;

	address(work, edge, child);
	if (store_bytes(packet, 0, FIRST_BYTE(&work->out), HEAD_BYTES) < 0)
		return 0;
	if (!payload_bytes)
		return 1;
	if (payload_bytes > PAYLOAD_BYTES_MAX)
		return 0;
	return store_bytes(packet, HEAD_BYTES, slot->result, payload_bytes) >= 0;
}

/* Makes the packet a child's result. */
INLINE int write_result_to(struct packet *packet, struct workspace *work, struct place *place,
			   struct slot *slot, u32 child)
{
	child &= CHILDREN_MAX - 1;
	work->out.frame.attempt = mark_attempt(slot->lanes[child].mark);
	return write_segment(packet, work, &place->edges[child], slot, child);
}

struct results {
	struct packet *packet;
	struct workspace *work;
	struct place *place;
	struct slot *slot;
	/* Children that get this result by multicast, one bit each. */
	u32 spared;
	/* The interface that multicast takes from here; 0 if it comes from the root. */
	u32 multicast_interface;
	/* How many children get it by multicast, and the last of them. */
	u32 reached;
	u32 last_reached;
};

/* Behind another interface than the one that multicast takes from here, it might not arrive. */
INLINE int is_spared(const struct results *results, const struct lane *lane, u32 child)
{
	return results->spared >> (child & 31) & 1 &&
	       (!results->multicast_interface || results->multicast_interface == lane->interface);
}

/* Makes the packet a child's result. False if it can't, or if the slot has moved on meanwhile: then the child has had
 * the result by multicast. */
INLINE int write_copy(struct results *results, const struct lane *lane, u32 child)
{
	struct workspace *work = results->work;

	write_hardware(&work->out.envelope, lane->hardware);
	return write_result_to(results->packet, work, results->place, results->slot, child) &&
	       (!results->place->may_be_overtaken ||
		holds(read_word_in_order(results->slot), work->in.frame.sequence));
}

static long send_result(u32 child, void *context)
{
	struct results *results = context;
	struct lane *lane = &results->slot->lanes[child & (CHILDREN_MAX - 1)];

	if (is_spared(results, lane, child)) {
		results->reached++;
		results->last_reached = child;
		return 0;
	}
	if (!write_copy(results, lane, child))
		return 1;
	send_copy(results->packet, lane->interface);
	return 0;
}

/* Results sent without a subscriber, after which none goes to a multicast address, as in
 * `protocol::node::multicast`. */
enum { UNRECEIVED_MAX = 64 };

/* Whether the next result goes to the multicast address; counts those that nobody receives. */
INLINE int use_multicast(struct place *place, u32 payload_bytes)
{
	struct multicast *multicast = &place->multicast;

	if (!multicast->edge.peer_address || payload_bytes > multicast->longest_bytes)
		return 0;
	if (read_shared_number(&multicast->has_subscriber))
		multicast->unreceived = 0;
	else if (multicast->unreceived <= UNRECEIVED_MAX)
		multicast->unreceived++;
	return multicast->unreceived <= UNRECEIVED_MAX;
}

/* Whether subscribers are behind several interfaces, and multicast reaches one of them at most: an aggregator at a switch's
 * ports has a host behind each. */
INLINE int are_apart(const struct results *results)
{
	u32 subscribers = results->spared;

	return results->reached < 2 && (subscribers & (subscribers - 1));
}

/* Sends the result in this packet itself to the multicast address, or to the one whom that would reach; and before it
 * copies to the others. */
INLINE int multicast_result(struct packet *packet, struct workspace *work, struct place *place,
			    struct slot *slot)
{
	struct envelope *envelope = &work->out.envelope;
	const struct edge *edge = &place->multicast.edge;
	struct results results = {
		.packet = packet,
		.work = work,
		.place = place,
		.slot = slot,
		.spared = read_shared_number(&place->multicast.spared),
		.multicast_interface = work->interface,
	};

	repeat(place->children, send_result, &results);
	if (are_apart(&results)) {
		u32 child = results.last_reached & (CHILDREN_MAX - 1);
		struct lane *lane = &slot->lanes[child];

		if (!results.reached || !write_copy(&results, lane, child))
			return VERDICT_DROP;
		return send_packet(lane->interface);
	}
	write_hardware(envelope, work->in.envelope.hardware_target);
	write_multicast_target(envelope, edge->peer_address);
	envelope->hops = MULTICAST_HOPS;
	work->out.frame.attempt = 0;
	if (!write_segment(packet, work, edge, slot, EVERYONE))
		return VERDICT_DROP;
	return send_packet(work->interface);
}

/* Sends the result to every child that does not have it by the root's multicast, the last in this packet itself. */
INLINE int copy_results(struct packet *packet, struct workspace *work, struct place *place,
			struct slot *slot, u32 spared)
{
	struct results results = {
		.packet = packet,
		.work = work,
		.place = place,
		.slot = slot,
		.spared = spared,
	};
	u32 last = place->children - 1;
	struct lane *lane = &slot->lanes[last & (CHILDREN_MAX - 1)];

	repeat(last, send_result, &results);
	if (is_spared(&results, lane, last) || !write_copy(&results, lane, last))
		return VERDICT_DROP;
	return send_packet(lane->interface);
}

/* Answers a repeat from the slot. */
INLINE int send_again(struct packet *packet, struct workspace *work, struct place *place,
		      struct slot *slot, u32 child)
{
	begin_result(work, place, slot);
	write_hardware(&work->out.envelope, work->in.envelope.hardware_target);
	if (!write_result_to(packet, work, place, slot, child))
		return VERDICT_DROP;
	/* If the slot has moved on meanwhile, the child has had this result. */
	if (!holds(read_word_in_order(slot), work->in.frame.sequence))
		return VERDICT_DROP;
	return send_packet(work->interface);
}
