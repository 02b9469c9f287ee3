/* Steers datagrams to AF_XDP sockets, at an interface and before the host's network stack.
 *
 * A datagram goes to the socket of the queue that it arrived at, if its address and port are in the table.
 * Whatever else comes, or arrives at a queue without a socket, goes to the network stack as ever. Declared here are
 * the kernel's helpers by their numbers, which are part of its interface to programs (linux/bpf.h).
 */
#include "datagram.h"

enum {
	QUEUES_MAX = 64,
	PORTS_MAX = 4096,
	/* What a socket's buffer holds: 2 KiB less the headroom that the kernel keeps. Trains of datagrams, which the
	 * kernel carries as one packet, are longer. */
	PACKET_BYTES_MAX = 2048 - 256,
};

SECTION("maps") struct map_definition PORTS = { TYPE_HASH, sizeof(struct target), sizeof(u32), PORTS_MAX, 0 };
SECTION("maps") struct map_definition SOCKETS = { TYPE_SOCKETS, sizeof(u32), sizeof(u32), QUEUES_MAX, 0 };

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const redirect)(void *map, u32 key, u64 otherwise) = (void *)51;

/* The start of the kernel's `struct xdp_md`. */
struct context {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 interface;
	u32 queue;
};

enum { VERDICT_PASS = 2 };

SECTION("xdp") int steer(struct context *context)
{
	const struct headers *headers = (void *)(u64)context->data;
	const void *end = (void *)(u64)context->data_end;
	struct target target;

	if ((const void *)(headers + 1) > end || (const void *)((const u8 *)headers + PACKET_BYTES_MAX) < end)
		return VERDICT_PASS;
	if (!is_datagram(headers))
		return VERDICT_PASS;
	target = target_of(headers);
	if (!lookup(&PORTS, &target))
		return VERDICT_PASS;
	return redirect(&SOCKETS, context->queue, VERDICT_PASS);
}

SECTION("license") char program_license[] = "Apache-2.0";
