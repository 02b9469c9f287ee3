/* The maps. In user space they are numbers that `lookup` of user.c knows. */
#pragma once

#include "packet.h"
#include "tables.h"

#define COUNT(counters, name, number) __sync_fetch_and_add(&(counters)->name, number)

#ifndef USER_SPACE
SECTION("maps") struct map_definition MAP_DIRECTORY = {
	TYPE_HASH, sizeof(u64), sizeof(u32), PLACES, 0,
};
SECTION("maps") struct map_definition MAP_PLACES = {
	TYPE_ARRAY, sizeof(u32), sizeof(struct place), PLACES, MAPPABLE,
};
SECTION("maps") struct map_definition MAP_SLOTS = {
	TYPE_ARRAY, sizeof(u32), sizeof(struct slot), SLOTS, MAPPABLE,
};
SECTION("maps") struct map_definition MAP_COUNTERS = {
	TYPE_ARRAY, sizeof(u32), sizeof(struct counters), 1, MAPPABLE,
};
SECTION("maps") struct map_definition MAP_WORKSPACES = {
	TYPE_ARRAY_PER_CPU, sizeof(u32), sizeof(struct workspace), 1, 0,
};
#endif
