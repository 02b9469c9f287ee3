/* The program in user space, for tests: the helpers and maps that the kernel would provide. */
#define USER_SPACE

#include <string.h>

#include "node.c"

/* One packet on its way through the program. */
struct packet {
	u8 *bytes;
	u32 len_bytes;
	u32 room_bytes;
	u32 interface;
	int is_checksum_known;
};

/* The tables. */
struct world {
	struct place *places;
	struct slot *slots;
	struct counters *counters;
	/* The directory: an entry is in use if its key is. */
	u64 keys[PLACES];
	u32 indices[PLACES];
};

/* One run of the program. */
struct run {
	struct world *world;
	struct workspace workspace;
	/* The interface of `send_packet`: the kernel acts on it when the program ends. */
	u32 redirected_to;
	void *listener;
	void (*on_sent)(void *listener, u32 interface, const u8 *bytes, u32 len_bytes);
};

static __thread struct run run;

enum { VERDICT_REDIRECT = 7 };

/* The index of a key's place; none if it has none. */
static u32 *find(u64 key)
{
	u32 entry;

	for (entry = 0; entry < PLACES; entry++)
		if (__atomic_load_n(&run.world->keys[entry], __ATOMIC_ACQUIRE) == key)
			return &run.world->indices[entry];
	return 0;
}

void *lookup(enum map map, const void *key)
{
	u32 index = *(const u32 *)key;

	switch (map) {
	case MAP_DIRECTORY:
		return find(*(const u64 *)key);
	case MAP_PLACES:
		return index < PLACES ? &run.world->places[index] : 0;
	case MAP_SLOTS:
		return index < SLOTS ? &run.world->slots[index] : 0;
	case MAP_COUNTERS:
		return run.world->counters;
	default:
		return &run.workspace;
	}
}

int load_bytes(struct packet *packet, u32 offset, void *target, u32 len_bytes)
{
	step();
	if (offset + len_bytes > packet->len_bytes)
		return -1;
	memcpy(target, packet->bytes + offset, len_bytes);
	return 0;
}

int store_bytes(struct packet *packet, u32 offset, const void *source, u32 len_bytes)
{
	step();
	if (offset + len_bytes > packet->len_bytes)
		return -1;
	memcpy(packet->bytes + offset, source, len_bytes);
	return 0;
}

int change_length(struct packet *packet, u32 len_bytes)
{
	if (len_bytes > packet->room_bytes)
		return -1;
	if (len_bytes > packet->len_bytes)
		memset(packet->bytes + packet->len_bytes, 0, len_bytes - packet->len_bytes);
	packet->len_bytes = len_bytes;
	return 0;
}

int send_copy(struct packet *packet, u32 interface)
{
	run.on_sent(run.listener, interface, packet->bytes, packet->len_bytes);
	return 0;
}

int send_packet(u32 interface)
{
	run.redirected_to = interface;
	return VERDICT_REDIRECT;
}

s64 sum_of(const void *bytes, u32 len_bytes, u32 seed)
{
	u64 sum = seed;
	u32 offset, number;

	for (offset = 0; offset < len_bytes; offset += 4) {
		memcpy(&number, (const u8 *)bytes + offset, 4);
		sum += number;
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (u32)(sum + (sum >> 32));
}

int is_checksum_known(struct packet *packet)
{
	return packet->is_checksum_known;
}

void repeat(u32 count, long (*body)(u32 index, void *context), void *context)
{
	u32 index;

	for (index = 0; index < count && !body(index, context); index++)
		;
}

u32 length_of(struct packet *packet)
{
	return packet->len_bytes;
}

u32 interface_of(struct packet *packet)
{
	return packet->interface;
}

/* Runs the program over one packet. Returns its verdict; what it sends goes to the listener. Threads may do so at the
 * same time. */
int kernel_path_run(struct world *world, struct packet *packet, void *listener,
		    void (*on_sent)(void *listener, u32 interface, const u8 *bytes, u32 len_bytes))
{
	int verdict;

	run.world = world;
	run.listener = listener;
	run.on_sent = on_sent;
	verdict = aggregate(packet);
	if (verdict == VERDICT_REDIRECT)
		send_copy(packet, run.redirected_to);
	return verdict;
}

/* Size of an element that the program gathers; 0 if it leaves such segments to the process. */
u32 kernel_path_element_bytes(u32 operator_code, u32 datatype)
{
	return is_defined(operator_code, datatype) ? element_bytes(datatype) : 0;
}

/* Whether the program folds what it gathers. */
int kernel_path_is_folded_here(u32 operator_code, u32 datatype, u32 elements, u32 children)
{
	return is_folded_here(operator_code, datatype, elements, children);
}

/* Combines the elements in two words. */
u64 kernel_path_combined(u32 operator_code, u32 datatype, u64 left, u64 right)
{
	return combined_word(operator_code, datatype, left, right);
}

u32 kernel_path_world_bytes(void)
{
	return sizeof(struct world);
}

/* The sizes and offsets that `layout.rs` mirrors. */
u32 kernel_path_layout(u32 which)
{
	const u32 layout[] = {
		sizeof(struct edge), sizeof(struct place), sizeof(struct lane),
		sizeof(struct multicast), __builtin_offsetof(struct place, multicast),
		sizeof(struct parent), __builtin_offsetof(struct place, parent),
		__builtin_offsetof(struct parent, route), __builtin_offsetof(struct slot, forwarded),
		sizeof(struct slot), sizeof(struct counters),
		__builtin_offsetof(struct place, edges), __builtin_offsetof(struct edge, next),
		__builtin_offsetof(struct lane, mark), __builtin_offsetof(struct lane, interface),
		__builtin_offsetof(struct slot, result), __builtin_offsetof(struct slot, lanes),
		CHILDREN_MAX, PAYLOAD_BYTES_MAX, FLOAT_SUMS_MAX, SLOTS_PER_PLACE, PLACES, SLOTS,
	};

	return which < sizeof(layout) / sizeof(layout[0]) ? layout[which] : 0;
}
