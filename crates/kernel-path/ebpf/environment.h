/* Where this source runs: in the kernel as eBPF, or in user space for tests.
 *
 * In the kernel, what is declared here are the helpers by their numbers, which are part of the
 * kernel's interface to programs (linux/bpf.h). In user space the same names are functions of user.c.
 */
#pragma once

#include "program.h"

#define INLINE static inline __attribute__((always_inline))
#define UNUSED __attribute__((unused))
#define NOINLINE static __attribute__((noinline))
/* Verified once for all arguments, not anew with each call's. */
#define GLOBAL __attribute__((noinline))

/* What becomes of a packet (linux/bpf.h, `enum tcx_action_base`). What is passed goes to the next program at
 * the interface, which may be another aggregator's, and then to the host. */
enum verdict { VERDICT_PASS = -1, VERDICT_DROP = 2 };

#ifdef USER_SPACE

struct packet;

/* Called before each access to what others may change: there a test lets others run. */
void step(void);

enum map { MAP_DIRECTORY, MAP_PLACES, MAP_SLOTS, MAP_COUNTERS, MAP_WORKSPACES };

void *lookup(enum map map, const void *key);
int load_bytes(struct packet *packet, u32 offset, void *target, u32 len_bytes);
int store_bytes(struct packet *packet, u32 offset, const void *source, u32 len_bytes);
int change_length(struct packet *packet, u32 len_bytes);
int send_copy(struct packet *packet, u32 interface);
int send_packet(u32 interface);
s64 sum_of(const void *bytes, u32 len_bytes, u32 seed);
int is_checksum_known(struct packet *packet);
void repeat(u32 count, long (*body)(u32 index, void *context), void *context);
u32 length_of(struct packet *packet);
u32 interface_of(struct packet *packet);

#else

#define step() ((void)0)

/* A packet as programs see it: the start of the kernel's `struct __sk_buff`. */
struct packet {
	u32 len_bytes;
	u32 unused[9];
	u32 interface;
};

static void *(*const helper_lookup)(void *map, const void *key) = (void *)1;
static long (*const helper_store)(struct packet *, u32, const void *, u32, u64) = (void *)9;
static long (*const helper_clone_redirect)(struct packet *, u32, u64) = (void *)13;
static long (*const helper_redirect)(u32, u64) = (void *)23;
static long (*const helper_load)(const struct packet *, u32, void *, u32) = (void *)26;
static s64 (*const helper_sum)(const void *, u32, const void *, u32, u32) = (void *)28;
static long (*const helper_change_tail)(struct packet *, u32, u64) = (void *)38;
static long (*const helper_checksum_level)(struct packet *, u64) = (void *)135;
static long (*const helper_loop)(u32, void *, void *, u64) = (void *)181;

#define lookup(map, key) helper_lookup(&map, key)
#define load_bytes(packet, offset, target, len_bytes) \
	helper_load(packet, offset, target, len_bytes)
#define store_bytes(packet, offset, source, len_bytes) \
	helper_store(packet, offset, source, len_bytes, 0)
#define change_length(packet, len_bytes) helper_change_tail(packet, len_bytes, 0)
#define send_copy(packet, interface) helper_clone_redirect(packet, interface, 0)
#define send_packet(interface) helper_redirect(interface, 0)
#define sum_of(bytes, len_bytes, seed) helper_sum(0, 0, bytes, len_bytes, seed)
/* Whether the network card has checked it: level 0 or more. */
#define is_checksum_known(packet) (helper_checksum_level(packet, 0) >= 0)
#define repeat(count, body, context) helper_loop(count, body, context, 0)
#define length_of(packet) ((packet)->len_bytes)
#define interface_of(packet) ((packet)->interface)

#endif

INLINE u64 compare_and_swap(u64 *target, u64 expected, u64 next)
{
	step();
	return __sync_val_compare_and_swap(target, expected, next);
}

/* Read what others change. */
INLINE u32 read_shared_number(const u32 *source)
{
	step();
	return *(const volatile u32 *)source;
}

INLINE u64 read_shared(const u64 *source)
{
	step();
	return *(const volatile u64 *)source;
}
