/* Packets: what comes in is read and checked here. */
#pragma once

#include "frame.h"
#include "tables.h"

/* A packet as it lies in memory, but for its payload. */
struct packet_head {
	struct envelope envelope;
	struct frame frame;
};

enum { HEAD_BYTES = ENVELOPE_BYTES + FRAME_BYTES };

/* Where a packet's first byte lies. */
#define FIRST_BYTE(head) ((head)->envelope.hardware_target)

/* How a datagram's checksum is given, and so how its answers give it. */
enum checksum {
	CHECKSUM_WRONG,
	/* Left out, as UDP over IPv4 may. */
	CHECKSUM_NONE,
	/* Written: over everything. */
	CHECKSUM_FULL,
	/* Left to the network card: over addresses and length only. */
	CHECKSUM_PARTIAL,
};

/* One run's memory: a program's stack is too small for it. */
struct workspace {
	struct packet_head in;
	struct packet_head out;
	u64 payload[PAYLOAD_WORDS];
	u32 payload_bytes;
	enum checksum checksum;
	/* The sum over the payload of what goes out. */
	u32 payload_sum;
	u32 interface;
};

INLINE u16 folded(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The sum over what UDP adds to its own bytes: addresses, protocol and length. */
INLINE u64 pseudo_header_sum(const struct envelope *envelope)
{
	return (u64)envelope->source + envelope->target + envelope->datagram_bytes +
	       SWAPPED_16(UDP);
}

/* Kernels before 6.13 sum no more at once. */
enum { SUMMED_BYTES_MAX = 512 };

/* The sum over a payload with zeros up to the next multiple of four. */
INLINE u32 payload_sum(const u64 *payload, u32 payload_bytes)
{
	u32 padded_bytes = (payload_bytes + 3) & ~3u;
	u32 sum, rest;

	if (padded_bytes <= SUMMED_BYTES_MAX)
		return sum_of(payload, padded_bytes, 0);
	sum = sum_of(payload, SUMMED_BYTES_MAX, 0);
	rest = padded_bytes - SUMMED_BYTES_MAX;
	if (rest > PAYLOAD_BYTES_MAX - SUMMED_BYTES_MAX)
		return 0;
	return sum_of(payload + SUMMED_BYTES_MAX / 8, rest, sum);
}

/* The sum over a datagram: its ports, its length, its checksum, the frame and the payload. */
INLINE u16 datagram_sum(const struct packet_head *head, u32 sum_of_payload)
{
	u64 sum = pseudo_header_sum(&head->envelope) + sum_of_payload;

	sum += (u32)sum_of(&head->envelope.source_port, PORT_BYTES, 0);
	sum += (u32)sum_of(&head->frame, FRAME_BYTES, 0);
	return folded(sum);
}

/* Reads a packet that may be a request or a result of one segment, or an ack. False for everything else. */
INLINE int read_head(struct packet *packet, struct workspace *work)
{
	struct envelope *envelope = &work->in.envelope;
	struct frame *frame = &work->in.frame;
	u32 len_bytes = length_of(packet);
	u32 payload_bytes;

	if (len_bytes < HEAD_BYTES || load_bytes(packet, 0, FIRST_BYTE(&work->in), HEAD_BYTES) < 0)
		return 0;
	if (frame->magic != FRAME_MAGIC || frame->version != FRAME_VERSION ||
	    (frame->kind != KIND_REQUEST && frame->kind != KIND_RESULT && frame->kind != KIND_ACK))
		return 0;
	if (envelope->protocol != PROTOCOL_IPV4 ||
	    envelope->version_and_length != IPV4_NO_OPTIONS || envelope->transport != UDP ||
	    (envelope->fragment & ~DO_NOT_FRAGMENT))
		return 0;
	payload_bytes = frame->payload_bytes;
	/* One frame and nothing else: no train of several, and no padding. */
	if (payload_bytes > PAYLOAD_BYTES_MAX || len_bytes != HEAD_BYTES + payload_bytes ||
	    envelope->datagram_bytes != SWAPPED_16(PORT_BYTES + FRAME_BYTES + payload_bytes) ||
	    envelope->total_bytes != SWAPPED_16(ADDRESS_BYTES + PORT_BYTES + FRAME_BYTES + payload_bytes))
		return 0;
	work->payload_bytes = payload_bytes;
	work->interface = interface_of(packet);
	return 1;
}

/* Reads the payload, with zeros behind it up to the next multiple of eight. */
INLINE int read_payload(struct packet *packet, u64 *target, u32 payload_bytes)
{
	u32 last;

	if (!payload_bytes)
		return 1;
	if (payload_bytes > PAYLOAD_BYTES_MAX)
		return 0;
	last = (payload_bytes - 1) / 8;
	if (last >= PAYLOAD_WORDS)
		return 0;
	target[last] = 0;
	return load_bytes(packet, HEAD_BYTES, target, payload_bytes) >= 0;
}

/* How the packet's checksum is given, if it is right. */
INLINE enum checksum check_sum(struct packet *packet, struct workspace *work)
{
	struct envelope *envelope = &work->in.envelope;
	int is_partial = envelope->checksum == folded(pseudo_header_sum(envelope));
	int is_full;

	if (!envelope->checksum)
		return CHECKSUM_NONE;
	if (is_checksum_known(packet))
		return CHECKSUM_FULL;
	if (!read_payload(packet, work->payload, work->payload_bytes))
		return CHECKSUM_WRONG;
	is_full = datagram_sum(&work->in, payload_sum(work->payload, work->payload_bytes)) == 0xffff;
	/* One packet in 65,536 could be either. Leaving the checksum out is right in both cases. */
	if (is_partial && is_full)
		return CHECKSUM_NONE;
	if (is_partial)
		return CHECKSUM_PARTIAL;
	return is_full ? CHECKSUM_FULL : CHECKSUM_WRONG;
}
