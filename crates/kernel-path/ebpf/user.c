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

/* What the tables lie in, and who is told of what is sent. */
struct world {
	struct place *places;
	struct slot *slots;
	struct counters *counters;
	struct workspace workspace;
	u32 places_used;
	u64 keys[PLACES];
	u32 indices[PLACES];
	void *listener;
	void (*on_sent)(void *listener, u32 interface, const u8 *bytes, u32 len_bytes);
};

static __thread struct world *world;
/* The interface of the last `send_packet`: the kernel acts on it when the program ends. */
static __thread u32 redirected_to;

enum { VERDICT_REDIRECT = 7 };

void *lookup(enum map map, const void *key)
{
	u32 index = *(const u32 *)key;
	u32 entry;

	switch (map) {
	case MAP_DIRECTORY:
		for (entry = 0; entry < world->places_used; entry++)
			if (world->keys[entry] == *(const u64 *)key)
				return &world->indices[entry];
		return 0;
	case MAP_PLACES:
		return index < PLACES ? &world->places[index] : 0;
	case MAP_SLOTS:
		return index < SLOTS ? &world->slots[index] : 0;
	case MAP_COUNTERS:
		return world->counters;
	default:
		return &world->workspace;
	}
}

int load_bytes(struct packet *packet, u32 offset, void *target, u32 len_bytes)
{
	if (offset + len_bytes > packet->len_bytes)
		return -1;
	memcpy(target, packet->bytes + offset, len_bytes);
	return 0;
}

int store_bytes(struct packet *packet, u32 offset, const void *source, u32 len_bytes)
{
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
	world->on_sent(world->listener, interface, packet->bytes, packet->len_bytes);
	return 0;
}

int send_packet(u32 interface)
{
	redirected_to = interface;
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

/* Runs the program over one packet. Returns its verdict; what it sends goes to the listener. */
int kernel_path_run(struct world *in, struct packet *packet)
{
	int verdict;

	world = in;
	verdict = aggregate(packet);
	if (verdict == VERDICT_REDIRECT)
		send_copy(packet, redirected_to);
	return verdict;
}

/* Size of an element that the program can combine; 0 if it leaves it to the process. */
u32 kernel_path_element_bytes(u32 operator_code, u32 datatype)
{
	return element_bytes(operator_code, datatype);
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
		sizeof(struct slot), sizeof(struct counters),
		__builtin_offsetof(struct place, edges), __builtin_offsetof(struct edge, next),
		__builtin_offsetof(struct lane, sequence), __builtin_offsetof(struct lane, is_filled),
		__builtin_offsetof(struct slot, result), __builtin_offsetof(struct slot, lanes),
		CHILDREN_MAX, PAYLOAD_BYTES_MAX, SLOTS_PER_PLACE, PLACES, SLOTS,
	};

	return which < sizeof(layout) / sizeof(layout[0]) ? layout[which] : 0;
}
