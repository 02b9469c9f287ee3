/* What every eBPF program declares: numbers, sections and maps, as the kernel's interface to programs has them
 * (linux/bpf.h). */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))

struct map_definition {
	u32 type;
	u32 key_bytes;
	u32 value_bytes;
	u32 entries_max;
	u32 flags;
};

enum map_type { TYPE_HASH = 1, TYPE_ARRAY = 2, TYPE_ARRAY_PER_CPU = 6, TYPE_ARRAY_OF_MAPS = 12, TYPE_SOCKETS = 17 };

/* The flag of maps that a process may map. */
#define MAPPABLE (1u << 10)
