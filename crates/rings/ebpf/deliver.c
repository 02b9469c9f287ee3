/* Delivers datagrams to processes: copies each into a ring in its receiver's memory, before the host's network stack.
 *
 * A receiver is a process, which maps its own rings and no others. A datagram goes into the rings of its address and
 * port, if it shows the word that their owner expects, and then is dropped. Whatever else comes goes to the network stack as ever, as does a datagram that finds a ring full. A process
 * that sleeps says how many datagrams it lacks; the last of these goes to the network stack as well, which wakes the
 * process as for any datagram.
 *
 * Two programs at an interface do so, one at traffic control and one for XDP. Declared here are the kernel's helpers by
 * their numbers, which are part of its interface to programs (linux/bpf.h).
 */
#include "datagram.h"

enum {
	RECEIVERS_MAX = 64,
	/* Of one receiver. */
	RINGS_MAX = 32,
	SLOTS = 64,
	TARGETS_MAX = 8192,
	/* From the header of IP on: what an Ethernet with its usual MTU carries. */
	PACKET_BYTES_MAX = 1500,
	/* Others that claim a slot at the same time may win so often. */
	CLAIMS_MAX = 16,
};

/* What is delivered, and where. */
struct admission {
	/* What a datagram shows at the offset in its payload. */
	u64 word;
	u32 offset_bytes;
	u32 receiver;
	/* The receiver's first ring, and a bit for each other. */
	u32 first;
	u32 others;
};

struct slot {
	/* A writer may claim the slot at the position that stands here. The reader may read it when one more does. */
	u64 turn;
	u32 len_bytes;
	/* From the header of IP on. */
	u8 bytes[PACKET_BYTES_MAX];
};

/* Many writers, one reader (the bounded queue of Dmitry Vyukov). The reader maps it. */
struct ring {
	/* The next position to claim. */
	u64 tail;
	u64 reserved[7];
	/* How many datagrams the sleeping reader lacks. */
	s64 awaited;
	u64 reserved_too[7];
	struct slot slots[SLOTS];
};

/* Where a datagram goes to, as it stands in the packet. Addresses of IPv4 are mapped into those of IPv6 (RFC 4291). */
struct destination {
	u32 address[4];
	u16 port;
	u16 reserved;
};

SECTION("maps") struct map_definition TARGETS = {
	TYPE_HASH, sizeof(struct destination), sizeof(struct admission), TARGETS_MAX, 0
};
/* By receiver. Only types can say what lies in a map of maps: the numbers are lengths of arrays that are never there. */
SECTION(".maps") struct {
	int (*type)[TYPE_ARRAY_OF_MAPS];
	int (*key_size)[sizeof(u32)];
	int (*max_entries)[RECEIVERS_MAX];
	struct {
		int (*type)[TYPE_ARRAY];
		int (*key_size)[sizeof(u32)];
		int (*value_size)[sizeof(struct ring)];
		int (*max_entries)[RINGS_MAX];
		int (*map_flags)[MAPPABLE];
	} *values[];
} RINGS;

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const load_from_buffer)(const void *, u32, void *, u32) = (void *)26;
static long (*const load_from_frame)(const void *, u32, void *, u32) = (void *)189;

/* Where a program sits, which tells how it reads a packet. */
enum hook { TRAFFIC_CONTROL, XDP };

INLINE long load(enum hook hook, const void *packet, u32 offset, void *target, u32 len_bytes)
{
	return hook == XDP ? load_from_frame(packet, offset, target, len_bytes) :
			     load_from_buffer(packet, offset, target, len_bytes);
}

enum outcome { LEFT_TO_STACK, DELIVERED, DELIVERED_TO_SLEEPER };

/* Puts a packet into a ring. */
INLINE enum outcome put(enum hook hook, const void *packet, void *rings, u32 index, u32 len_bytes)
{
	struct ring *ring = lookup(rings, &index);
	struct slot *slot = 0;
	u64 position = 0;
	int tries;

	if (!ring)
		return LEFT_TO_STACK;
	for (tries = 0; tries < CLAIMS_MAX; tries++) {
		position = *(volatile u64 *)&ring->tail;
		slot = &ring->slots[position % SLOTS];
		if ((s64)(*(volatile u64 *)&slot->turn - position) < 0)
			return LEFT_TO_STACK;
		if (__sync_val_compare_and_swap(&ring->tail, position, position + 1) == position)
			break;
	}
	if (tries == CLAIMS_MAX)
		return LEFT_TO_STACK;
	/* The verifier has to see both bounds of what is passed on. */
	asm volatile("" : "+r"(len_bytes));
	if (len_bytes < IP_BYTES + UDP_BYTES || len_bytes > PACKET_BYTES_MAX ||
	    load(hook, packet, ETHERNET_BYTES, slot->bytes, len_bytes) < 0)
		len_bytes = 0;
	slot->len_bytes = len_bytes;
	/* A full barrier: the reader sees the slot, and this program whether the reader sleeps. */
	__sync_lock_test_and_set(&slot->turn, position + 1);
	if (!len_bytes)
		return LEFT_TO_STACK;
	if (*(volatile s64 *)&ring->awaited > 0 && __sync_fetch_and_add(&ring->awaited, -1) == 1)
		return DELIVERED_TO_SLEEPER;
	return DELIVERED;
}

/* A datagram that came whole. */
struct datagram {
	struct destination destination;
	/* Of all headers of IP, and from the first of them to the end of what is carried. */
	u32 ip_bytes;
	u32 len_bytes;
};

INLINE int read_ipv4(const struct headers *headers, struct datagram *datagram)
{
	if (!is_datagram(headers))
		return 0;
	datagram->destination.address[2] = IPV4_MAPPED;
	datagram->destination.address[3] = headers->target;
	datagram->destination.port = headers->target_port;
	datagram->ip_bytes = IP_BYTES;
	datagram->len_bytes = SWAPPED_16(headers->total_bytes);
	return 1;
}

/* Fragments, and whatever else has headers between those of IPv6 and UDP, are left to the network stack. */
INLINE int read_ipv6(enum hook hook, const void *packet, struct datagram *datagram)
{
	struct headers_ipv6 headers;

	if (load(hook, packet, 0, &headers, sizeof(headers)) < 0 || headers.next != UDP)
		return 0;
	__builtin_memcpy(datagram->destination.address, headers.target, sizeof(headers.target));
	datagram->destination.port = headers.target_port;
	datagram->ip_bytes = IPV6_BYTES;
	datagram->len_bytes = IPV6_BYTES + SWAPPED_16(headers.payload_bytes);
	return 1;
}

INLINE int read(enum hook hook, const void *packet, struct datagram *datagram)
{
	struct headers headers;

	if (load(hook, packet, 0, &headers, sizeof(headers)) < 0)
		return 0;
	return headers.protocol == PROTOCOL_IPV6 ? read_ipv6(hook, packet, datagram) : read_ipv4(&headers, datagram);
}

/* Whether nobody needs a packet any more. */
INLINE int deliver(enum hook hook, const void *packet)
{
	struct datagram datagram = {};
	const struct admission *admission;
	void *rings;
	u64 word;
	u32 len_bytes, others, receiver, ring, start;
	int is_done;

	if (!read(hook, packet, &datagram))
		return 0;
	/* Trains of datagrams, which the kernel carries as one packet, are longer. */
	len_bytes = datagram.len_bytes;
	if (len_bytes < datagram.ip_bytes + UDP_BYTES || len_bytes > PACKET_BYTES_MAX)
		return 0;
	start = ETHERNET_BYTES + datagram.ip_bytes + UDP_BYTES;
	admission = lookup(&TARGETS, &datagram.destination);
	if (!admission ||
	    load(hook, packet, start + (admission->offset_bytes & 0xffff), &word, sizeof(word)) < 0 ||
	    word != admission->word)
		return 0;
	receiver = admission->receiver;
	rings = lookup(&RINGS, &receiver);
	if (!rings)
		return 0;
	is_done = put(hook, packet, rings, admission->first, len_bytes) == DELIVERED;
	others = admission->others;
	for (ring = 0; others && ring < RINGS_MAX; ring++, others >>= 1)
		if (others & 1)
			is_done &= put(hook, packet, rings, ring, len_bytes) == DELIVERED;
	return is_done;
}

/* linux/bpf.h: `enum tcx_action_base`, `enum xdp_action`. */
enum verdict { TRAFFIC_CONTROL_NEXT = -1, TRAFFIC_CONTROL_DROP = 2, XDP_DROP = 1, XDP_PASS = 2 };

SECTION("classifier") int deliver_at_traffic_control(void *packet)
{
	return deliver(TRAFFIC_CONTROL, packet) ? TRAFFIC_CONTROL_DROP : TRAFFIC_CONTROL_NEXT;
}

SECTION("xdp") int deliver_by_xdp(void *packet)
{
	return deliver(XDP, packet) ? XDP_DROP : XDP_PASS;
}

SECTION("license") char program_license[] = "Apache-2.0";
