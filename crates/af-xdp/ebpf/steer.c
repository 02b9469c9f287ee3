/* Steers datagrams to AF_XDP sockets, at an interface and before the host's network stack.
 *
 * A datagram goes to the socket of the queue that it arrived at, if its address and port are in the table.
 * Whatever else comes, or arrives at a queue without a socket, goes to the network stack as ever. Declared here are
 * the kernel's helpers by their numbers, which are part of its interface to programs (linux/bpf.h).
 */
#include "ipv4.h"

enum {
	QUEUES_MAX = 64,
	PORTS_MAX = 4096,
	/* What a socket's buffer holds: 2 KiB less the headroom that the kernel keeps. Trains of datagrams, which the
	 * kernel carries as one packet, are longer. */
	PACKET_BYTES_MAX = 2048 - 256,
};

/* Where a datagram goes to, as it stands in the packet. */
struct port {
	u32 address;
	u16 port;
	u16 reserved;
};

SECTION("maps") struct map_definition PORTS = { TYPE_HASH, sizeof(struct port), sizeof(u32), PORTS_MAX, 0 };
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

/* Ethernet, IPv4 without options and UDP; numbers are big-endian. */
struct headers {
	u8 hardware_target[6];
	u8 hardware_source[6];
	u16 protocol;
	u8 version_and_length;
	u8 class_of_service;
	u16 total_bytes;
	u16 identification;
	u16 fragment;
	u8 hops;
	u8 transport;
	u16 header_checksum;
	u32 source;
	u32 target;
	u16 source_port;
	u16 target_port;
	u16 datagram_bytes;
	u16 checksum;
} __attribute__((packed));

enum { VERDICT_PASS = 2 };

SECTION("xdp") int steer(struct context *context)
{
	const struct headers *headers = (void *)(u64)context->data;
	const void *end = (void *)(u64)context->data_end;
	struct port port = {};

	if ((const void *)(headers + 1) > end || (const void *)((const u8 *)headers + PACKET_BYTES_MAX) < end)
		return VERDICT_PASS;
	if (headers->protocol != PROTOCOL_IPV4 || headers->version_and_length != IPV4_NO_OPTIONS ||
	    headers->transport != UDP || (headers->fragment & ~DO_NOT_FRAGMENT))
		return VERDICT_PASS;
	port.address = headers->target;
	port.port = headers->target_port;
	if (!lookup(&PORTS, &port))
		return VERDICT_PASS;
	return redirect(&SOCKETS, context->queue, VERDICT_PASS);
}

SECTION("license") char program_license[] = "Apache-2.0";
