/* What the program and the aggregator's process share. `layout.rs` mirrors it; a test compares them.
 *
 * A group that the program serves has a place, and a run of slots. A slot's word says which sequence
 * it holds, who has it, and which children's contributions are there:
 *
 *   bits 63..32  sequence
 *   bits 31..8   children that have claimed their lane, one bit each
 *   bits 7..3    how many of them have filled it
 *   bits 2..0    phase
 *
 * Every change of a word is a compare-and-swap. So one party opens a slot, one fills a lane, one sees
 * the last lane filled. The process can take a slot from the program whenever no run of the program
 * writes in it: every claimed lane is filled, and neither segment nor result is being written.
 */
#pragma once

#include "environment.h"

enum {
	CHILDREN_MAX = 16,
	PAYLOAD_BYTES_MAX = 1024,
	PAYLOAD_WORDS = PAYLOAD_BYTES_MAX / 8,
	PLACES = 64,
	/* Each place has a run of slots of its own. */
	SLOTS_PER_PLACE = 32,
	SLOTS = PLACES * SLOTS_PER_PLACE,
};

enum phase {
	/* Never used. */
	PHASE_EMPTY,
	/* The program is writing down which segment it holds, or the result from the parent. */
	PHASE_WRITING,
	/* The program gathers contributions. */
	PHASE_GATHERING,
	/* The program has made the result; it lies in the slot, for repeats. */
	PHASE_DONE,
	/* The process has this sequence. */
	PHASE_OF_PROCESS,
	/* The process has handed down its result. */
	PHASE_DONE_BY_PROCESS,
	/* The program has gathered all contributions, and the process is to fold them. */
	PHASE_GATHERED,
	/* The program has sent the parent what it made of all contributions; the result is to come from there. */
	PHASE_FORWARDED,
};

#define WORD_CLAIMED_SHIFT 8
#define WORD_FILLED_SHIFT 3
#define WORD_FILLED_ONE (1ull << WORD_FILLED_SHIFT)

/* One child's edge. Addresses and ports are big-endian. */
struct edge {
	u64 capability[2];
	u32 peer_address;
	u32 own_address;
	u16 peer_port;
	u16 own_port;
	/* The number after the highest it has sent. */
	u32 next;
};

/* Results that go to all children at once, to a multicast address. The root sends them. */
struct multicast {
	/* Its peer is the address; none if that is 0, as below another aggregator. */
	struct edge edge;
	/* Longest result that goes there. */
	u32 longest_bytes;
	/* Children that receive it and so need no copies, one bit each; and whether anybody does. The process
	 * changes both at any time: a child that gets both drops one, one that gets neither repeats its request. */
	u32 spared;
	u32 has_subscriber;
	/* Results sent since there was a subscriber. */
	u32 unreceived;
};

/* How far the route to the parent is known. */
enum route_state {
	ROUTE_UNKNOWN,
	/* The program is writing it down. */
	ROUTE_WRITING,
	ROUTE_KNOWN,
};

/* The aggregator above this one. */
struct parent {
	/* None if its peer's address is 0: this aggregator is the root. */
	struct edge edge;
	/* Which of its children this aggregator is. */
	u32 child;
	/* The route there, learnt from what came from there: the interface, and target and source in what it sent. */
	u32 interface;
	u8 hardware[12];
	u32 reserved;
	/* An `enum route_state`. The process sets it back when nothing arrives by that route. */
	u64 route;
};

/* One group. */
struct place {
	/* Cleared by the process before it changes anything else. */
	u32 is_on;
	u32 group;
	u32 epoch;
	/* Segments in flight at most. */
	u32 window;
	u32 first_slot;
	/* Slots less one; their number is a power of two. */
	u32 slot_mask;
	u32 children;
	/* Longest segment. */
	u32 payload_max_bytes;
	/* The earliest sequence whose result is not here. */
	u32 floor;
	/* Whether members may have results before this aggregator has them, because they came by multicast. */
	u32 may_be_overtaken;
	struct edge edges[CHILDREN_MAX];
	struct multicast multicast;
	struct parent parent;
};

/* The segment that a slot holds, as all its contributors describe it. */
struct segment {
	u32 operation;
	u32 number;
	u32 elements;
	u8 datatype;
	u8 operator_code;
	u8 has_data;
	u8 reserved;
};

/* One child's contribution, and where its answer goes. */
struct lane {
	u64 payload[PAYLOAD_WORDS];
	/* Bits 63..32 the sequence it was filled for last, bit 8 set, bits 7..0 the newest attempt that has come. */
	u64 mark;
	u32 interface;
	/* Target and source, as in what the child sent. */
	u8 hardware[12];
};

struct slot {
	u64 word;
	struct segment segment;
	/* As a lane's mark: the newest attempt that was sent to the parent. */
	u64 forwarded;
	/* What all contributions make; below another aggregator, the result once that has come. */
	u64 result[PAYLOAD_WORDS];
	struct lane lanes[CHILDREN_MAX];
};

/* What became of packets to the places here. Each is counted once, but for the sent ones. */
struct counters {
	/* Contributions counted. */
	u64 taken;
	/* Segments completed. */
	u64 completed;
	/* Segments that were gathered here, and handed to the process to be folded. */
	u64 gathered;
	/* Contributions that had been counted before. */
	u64 repeats;
	/* Wrong capability, wrong source, or outside the window; from the parent, too. */
	u64 refused;
	/* Left to the process: an operator, a type or a length that the program does not take, or a
	 * sequence that the process has. */
	u64 passed;
	u64 acks;
	u64 nacks;
	/* Results sent to multicast addresses. */
	u64 multicasts;
	/* Packets whose checksum was wrong. */
	u64 damaged;
};
