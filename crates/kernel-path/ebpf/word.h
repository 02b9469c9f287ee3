/* The word of a slot; `tables.h` says what its bits mean. */
#pragma once

#include "tables.h"

/* Attempts at one compare-and-swap: each failure is another child's success, so as many as there are
 * children suffice twice over. */
#define SWAPS_MAX (2 * CHILDREN_MAX)

INLINE u32 word_sequence(u64 word)
{
	return word >> 32;
}

INLINE u32 word_phase(u64 word)
{
	return word & 7;
}

INLINE u32 word_filled(u64 word)
{
	return word >> WORD_FILLED_SHIFT & 31;
}

INLINE int word_has_claim(u64 word, u32 child)
{
	return word >> (WORD_CLAIMED_SHIFT + child) & 1;
}

INLINE u64 claim_bit(u32 child)
{
	return 1ull << (WORD_CLAIMED_SHIFT + child);
}

INLINE u64 new_word(u32 sequence, enum phase phase)
{
	return (u64)sequence << 32 | phase;
}

INLINE int is_done(u64 word)
{
	u32 phase = word_phase(word);

	return phase == PHASE_DONE || phase == PHASE_DONE_BY_PROCESS;
}

/* Whether the slot holds this sequence. */
INLINE int holds(u64 word, u32 sequence)
{
	return word_phase(word) != PHASE_EMPTY && word_sequence(word) == sequence;
}

/* Whether the slot has moved on past a sequence: every member has had that result. */
INLINE int is_past(u64 word, u32 sequence)
{
	u32 ahead = word_sequence(word) - sequence;

	return word_phase(word) != PHASE_EMPTY && ahead - 1 < (1u << 31) - 1;
}

INLINE u64 with_phase(u64 word, enum phase phase)
{
	return (word & ~7ull) | phase;
}

/* Changes the phase of a slot whose word was `word`. False if it is another by now. */
INLINE int change_phase(struct slot *slot, u64 word, enum phase phase)
{
	return compare_and_swap(&slot->word, word, with_phase(word, phase)) == word;
}

INLINE u64 read_word(const struct slot *slot)
{
	return read_shared(&slot->word);
}

/* Reads the word in order with what is read before and after it. */
INLINE u64 read_word_in_order(struct slot *slot)
{
	return compare_and_swap(&slot->word, 0, 0);
}

#define MARK_FILLED (1ull << 8)
/* The parent has said that it has what was sent. */
#define MARK_ACKED (1ull << 9)

INLINE u64 new_mark(u32 sequence, u8 attempt)
{
	return (u64)sequence << 32 | MARK_FILLED | attempt;
}

INLINE u8 mark_attempt(u64 mark)
{
	return mark;
}

/* Notes an attempt if it is newer than what the mark of the same sequence has. True if it is. */
INLINE int note_attempt(u64 *mark, u32 sequence, u8 attempt)
{
	u64 before = read_shared(mark);

	/* If the mark changes meanwhile, its slot has moved on, or a newer attempt has been noted. */
	return before >> 32 == sequence && (before & MARK_FILLED) && attempt > mark_attempt(before) &&
	       compare_and_swap(mark, before, (before & ~0xffull) | attempt) == before;
}

/* Notes that the parent has acked. If the mark changes meanwhile, the next ack is noted. */
INLINE void note_ack(u64 *mark, u32 sequence)
{
	u64 before = read_shared(mark);

	if (before >> 32 == sequence)
		compare_and_swap(mark, before, before | MARK_ACKED);
}

INLINE int is_acked(const u64 *mark, u32 sequence)
{
	u64 now = read_shared(mark);

	return now >> 32 == sequence && (now & MARK_ACKED);
}

/* What one attempt at a change does, and what the attempts lead to. */
struct swap {
	struct slot *slot;
	u32 sequence;
	/* Bits that must not be set. */
	u64 absent;
	u64 added;
	u64 word;
	u32 is_made;
};

static long try_swap(u32 index UNUSED, void *context)
{
	struct swap *swap = context;
	u64 word = read_word(swap->slot);

	if (word_sequence(word) != swap->sequence || word_phase(word) != PHASE_GATHERING ||
	    (word & swap->absent))
		return 1;
	swap->word = word + swap->added;
	swap->is_made = compare_and_swap(&swap->slot->word, word, swap->word) == word;
	return swap->is_made;
}

/* Claims a lane of a gathering slot. False if it is claimed, or the slot was taken away. */
INLINE int claim_lane(struct slot *slot, u32 sequence, u32 child)
{
	struct swap swap = {
		.slot = slot,
		.sequence = sequence,
		.absent = claim_bit(child),
		.added = claim_bit(child),
	};

	repeat(SWAPS_MAX, try_swap, &swap);
	return swap.is_made;
}

/* Gives back a lane that this run has claimed. */
INLINE void give_back_lane(struct slot *slot, u32 sequence, u32 child)
{
	struct swap swap = { .slot = slot, .sequence = sequence, .added = 0 - claim_bit(child) };

	repeat(SWAPS_MAX, try_swap, &swap);
}

/* Counts a lane that this run has claimed as filled. Returns the word then. */
INLINE u64 count_filled(struct slot *slot, u32 sequence)
{
	struct swap swap = { .slot = slot, .sequence = sequence, .added = WORD_FILLED_ONE };

	repeat(SWAPS_MAX, try_swap, &swap);
	return swap.word;
}
