/* A frame in its packet. `docs/wire.md` describes the frame; all its numbers are little-endian, as
 * are the machines that this runs on. */
#pragma once

#include "environment.h"
#include "ipv4.h"

enum {
	FRAME_VERSION = 2,
	KIND_REQUEST = 3,
	KIND_RESULT = 4,
	KIND_ACK = 10,
	KIND_NACK = 11,
	TARGET_ALL = 1,
	/* The child in frames to a multicast address. */
	EVERYONE = 0xffff,
};

/* The first sequence of every group: shortly before the wrap. */
#define SEQUENCE_FIRST 0xffffffc0u

/* "TRIB", as it is read. */
#define FRAME_MAGIC 0x42495254u

struct frame {
	u32 magic;
	u8 version;
	u8 kind;
	u8 follows;
	u8 reason;
	u32 payload_bytes;
	u32 group;
	u32 epoch;
	u32 operation;
	u32 segment;
	u32 sequence;
	u32 elements;
	u32 target_member;
	u8 target_kind;
	u8 datatype;
	u8 operator_code;
	u8 attempt;
	u16 child;
	u16 behind;
	u64 capability[2];
};

/* Ethernet, IPv4 and UDP around it; their numbers are big-endian. The padding in front keeps the
 * frame behind it aligned. */
struct envelope {
	u8 padding[6];
	u8 hardware_target[6];
	u8 hardware_source[6];
	u16 protocol;
	u8 version_and_length;
	u8 service;
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
};

enum {
	FRAME_BYTES = sizeof(struct frame),
	ENVELOPE_BYTES = 42,
	ADDRESS_BYTES = 20,
	PORT_BYTES = 8,
	HOPS = 64,
	/* As `transport` has it. */
	MULTICAST_HOPS = 8,
};

_Static_assert(sizeof(struct frame) == 64, "a frame's header has 64 bytes");
_Static_assert(sizeof(struct envelope) == 6 + ENVELOPE_BYTES, "padding, Ethernet 14, IPv4 20, UDP 8");
