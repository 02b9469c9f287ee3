/* Numbers in the headers of Ethernet, IPv4 and UDP, as they lie in a packet. */
#pragma once

#include "program.h"

#define SWAPPED_16(number) ((u16)((u16)(number) >> 8 | (u16)(number) << 8))
#define PROTOCOL_IPV4 SWAPPED_16(0x0800)
#define PROTOCOL_IPV6 SWAPPED_16(0x86dd)
/* The third word of an address of IPv4 that is mapped into IPv6. */
#define IPV4_MAPPED (0xffffu << 16)
#define DO_NOT_FRAGMENT SWAPPED_16(0x4000)

enum { IPV4_NO_OPTIONS = 0x45, UDP = 17 };
