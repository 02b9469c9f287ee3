/* The slots of a group: who may open one, what it gathers, and its result.
 *
 * Does in the kernel what `protocol::node::slots` does in the process, for a group all of whose children send
 * datagrams. Knows nothing of packets.
 */
#pragma once

#include "arithmetic.h"
#include "frame.h"
#include "maps.h"
#include "word.h"

/* What a contribution leads to. */
enum outcome {
	/* The process has this sequence, or should. */
	OUTCOME_OF_PROCESS,
	/* It breaks the window. */
	OUTCOME_REFUSED,
	/* The slot has moved on: the child has had the result. */
	OUTCOME_PAST,
	/* It was counted before, and its slot waits for others. */
	OUTCOME_WAITING,
	/* It was counted before, and its slot has the result. */
	OUTCOME_ANSWERED,
	/* It was counted before, and its slot waits for the result from the parent. */
	OUTCOME_FORWARDED,
	/* It is the first of its child; its lane is to be filled. */
	OUTCOME_CLAIMED,
};

INLINE struct slot *slot_of(const struct place *place, u32 sequence)
{
	u32 index = place->first_slot + (sequence & place->slot_mask);

	return lookup(MAP_SLOTS, &index);
}

/* Whether a result is here, or is not needed any more. */
INLINE int is_answered(const struct place *place, u32 sequence)
{
	struct slot *slot = slot_of(place, sequence);
	u64 word;

	if (!slot)
		return 0;
	word = read_word(slot);
	return is_past(word, sequence) || (holds(word, sequence) && is_done(word));
}

struct floor_walk {
	const struct place *place;
	u32 floor;
};

static long advance_floor_once(u32 index UNUSED, void *context)
{
	struct floor_walk *walk = context;

	if (!is_answered(walk->place, walk->floor))
		return 1;
	walk->floor++;
	return 0;
}

/* Advances the floor over results that are here now. */
INLINE void advance_floor(struct place *place)
{
	struct floor_walk walk = { .place = place, .floor = place->floor };

	repeat(2 * SLOTS_PER_PLACE, advance_floor_once, &walk);
	place->floor = walk.floor;
}

/* Whether the segment a window later may be sent while this word is as it is. */
INLINE int is_spent(const struct place *place, u64 word)
{
	return is_done(word) || (place->may_be_overtaken && word_phase(word) == PHASE_FORWARDED);
}

/* How many numbers before `sequence` the earliest segment without a result lies; 0 if none does. */
INLINE u16 behind(const struct place *place, u32 sequence)
{
	u32 distance = sequence - place->floor;

	if (distance >= 1u << 31)
		return 0;
	return distance > 0xffff ? 0xffff : distance;
}

/* Whether a member may have this segment in flight: what lies a window before it must be complete at the member. */
INLINE int has_credit(const struct place *place, u32 sequence)
{
	u32 earlier = sequence - place->window;
	struct slot *slot = slot_of(place, earlier);
	u64 word;

	if (!slot)
		return 0;
	word = read_word(slot);
	if (word_phase(word) == PHASE_EMPTY)
		return sequence - SEQUENCE_FIRST < place->window;
	return holds(word, earlier) && is_spent(place, word);
}

INLINE int is_same_segment(const struct segment *segment, const struct frame *frame)
{
	return segment->operation == frame->operation && segment->number == frame->segment &&
	       segment->elements == frame->elements && segment->datatype == frame->datatype &&
	       segment->operator_code == frame->operator_code;
}

/* Opens a slot whose word was `word` for the frame's segment. Nobody else changes an opening slot. */
INLINE int open_slot(struct slot *slot, u64 word, const struct frame *frame)
{
	u64 opening = new_word(frame->sequence, PHASE_WRITING);

	if (compare_and_swap(&slot->word, word, opening) != word)
		return 0;
	step();
	slot->segment.operation = frame->operation;
	slot->segment.number = frame->segment;
	slot->segment.elements = frame->elements;
	slot->segment.datatype = frame->datatype;
	slot->segment.operator_code = frame->operator_code;
	slot->segment.has_data = frame->follows;
	compare_and_swap(&slot->word, opening, new_word(frame->sequence, PHASE_GATHERING));
	return 1;
}

/* Finds what a contribution leads to, and opens its slot and claims its lane if it is new. */
INLINE enum outcome claim(struct place *place, struct slot *slot, const struct frame *frame, u32 child)
{
	u32 sequence = frame->sequence;
	u64 word = read_word(slot);

	if (is_past(word, sequence))
		return OUTCOME_PAST;
	if (!holds(word, sequence)) {
		/* What the process has sent upward, members may have the results of, too. */
		if (!has_credit(place, sequence) ||
		    !(word_phase(word) == PHASE_EMPTY || is_spent(place, word)))
			return place->may_be_overtaken ? OUTCOME_OF_PROCESS : OUTCOME_REFUSED;
		/* A run that loses a race for the slot leaves its packet to the process. */
		if (!open_slot(slot, word, frame))
			return OUTCOME_OF_PROCESS;
		word = new_word(sequence, PHASE_GATHERING);
	}
	switch (word_phase(word)) {
	case PHASE_DONE:
		return OUTCOME_ANSWERED;
	case PHASE_FORWARDED:
		return OUTCOME_FORWARDED;
	case PHASE_GATHERING:
		break;
	default:
		/* What was gathered, too: the packet that told the process of it may be lost. */
		return OUTCOME_OF_PROCESS;
	}
	if (word_has_claim(word, child))
		return OUTCOME_WAITING;
	if (!is_same_segment(&slot->segment, frame))
		return OUTCOME_OF_PROCESS;
	return claim_lane(slot, sequence, child) ? OUTCOME_CLAIMED : OUTCOME_OF_PROCESS;
}

struct fold {
	struct slot *slot;
	/* The child whose lane is folded. */
	u32 child;
	u32 children;
	u32 words;
};

static long fold_word(u32 index, void *context)
{
	struct fold *fold = context;
	struct slot *slot = fold->slot;
	u32 word = index & (PAYLOAD_WORDS - 1);
	u64 right = slot->lanes[fold->child & (CHILDREN_MAX - 1)].payload[word];

	slot->result[word] = fold->child ? combined_word(slot->segment.operator_code,
							 slot->segment.datatype,
							 slot->result[word], right) : right;
	return 0;
}

static long fold_lane(u32 child, void *context)
{
	struct fold *fold = context;

	if (child >= fold->children)
		return 1;
	fold->child = child;
	repeat(fold->words, fold_word, fold);
	return 0;
}

/* Folds all lanes of a slot, in child order. */
INLINE void fold_lanes(struct place *place, struct slot *slot, u32 payload_bytes)
{
	struct fold fold = {
		.slot = slot,
		.children = place->children,
		.words = (payload_bytes + 7) / 8,
	};

	repeat(CHILDREN_MAX, fold_lane, &fold);
}
