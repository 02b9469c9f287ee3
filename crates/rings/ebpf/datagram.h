/* Datagrams as they lie in packets: Ethernet, IPv4 without options or IPv6 without further headers, and UDP. */
#pragma once

#include "ipv4.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	ETHERNET_BYTES = 14,
	IP_BYTES = 20,
	IPV6_BYTES = 40,
	UDP_BYTES = 8,
	HEADERS_BYTES = ETHERNET_BYTES + IP_BYTES + UDP_BYTES,
};

/* Numbers are big-endian. */
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

struct headers_ipv6 {
	u8 hardware_target[6];
	u8 hardware_source[6];
	u16 protocol;
	u32 class_and_flow;
	u16 payload_bytes;
	u8 next;
	u8 hops;
	u32 source[4];
	u32 target[4];
	u16 source_port;
	u16 target_port;
	u16 datagram_bytes;
	u16 checksum;
} __attribute__((packed));

/* Where a datagram of IPv4 goes to, as it stands in the packet. */
struct target {
	u32 address;
	u16 port;
	u16 reserved;
};

/* Whether these are the headers of a whole datagram, and no fragment's. */
INLINE int is_datagram(const struct headers *headers)
{
	return headers->protocol == PROTOCOL_IPV4 && headers->version_and_length == IPV4_NO_OPTIONS &&
	       headers->transport == UDP && !(headers->fragment & ~DO_NOT_FRAGMENT);
}

INLINE struct target target_of(const struct headers *headers)
{
	struct target target = {};

	target.address = headers->target;
	target.port = headers->target_port;
	return target;
}
