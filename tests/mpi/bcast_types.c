/*
 * Broadcasts in which ranks describe the same values differently: MPI requires equal type signatures,
 * not equal counts and datatypes (MPI 4.1, 6.4). Gaps between elements must stay untouched.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "layouts.h"

enum { INTS_MAX = 300000, SPREAD = LAYOUTS_SPREAD, GAP = -77 };
/* Not 0: Open MPI 5.0 and MPICH 5.0 hang if only some ranks give a count of 0. */
static const int lengths[] = {2, 12, 120, 4092, INTS_MAX};

static int value_at(uint64_t salt, int index) {
    return (int)(check_hash(salt, (uint64_t)index, 0) & 0x7fffffff);
}

/* Checks values and gaps against a whole buffer built here. */
static void check_buffer(const layout *mine, int ints, uint64_t salt, const int *got, int *wanted) {
    size_t room = (size_t)INTS_MAX * SPREAD;
    for (size_t at = 0; at < room; at++) {
        wanted[at] = GAP;
    }
    for (int index = 0; index < ints; index++) {
        wanted[mine->position(index, ints)] = value_at(salt, index);
    }
    for (size_t at = 0; at < room; at++) {
        if (wanted[at] != got[at]) {
            check_that(false, "int %zu of the buffer: expected %d, got %d", at, wanted[at],
                       got[at]);
            return;
        }
    }
    check_that(true, "buffer");
}

static void broadcast(const layout *mine, int *buffer, int root, bool blocking) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (blocking) {
        MPI_Bcast(buffer, mine->count, mine->type, root, MPI_COMM_WORLD);
    } else {
        MPI_Ibcast(buffer, mine->count, mine->type, root, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* The root uses one layout, every other rank the one that `shift` and its rank pick. */
static void run_case(int ints, int root_layout, int shift, bool blocking, int *buffer,
                     int *wanted) {
    uint64_t salt = (uint64_t)ints * 100 + (uint64_t)(root_layout * LAYOUTS + shift);
    int root = (int)(check_hash(salt, 1, 1) % (uint64_t)world.ranks);
    int which = world.rank == root ? root_layout : (root_layout + shift + world.rank) % LAYOUTS;
    layout mine = layout_make(which, ints);
    check_case("%s of %d ints, root %d with layout %d, here %s",
               blocking ? "MPI_Bcast" : "MPI_Ibcast", ints, root, root_layout, mine.name);
    for (size_t at = 0; at < (size_t)INTS_MAX * SPREAD; at++) {
        buffer[at] = GAP;
    }
    for (int index = 0; index < ints && world.rank == root; index++) {
        buffer[mine.position(index, ints)] = value_at(salt, index);
    }
    broadcast(&mine, buffer, root, blocking);
    check_buffer(&mine, ints, salt, buffer, wanted);
    layout_free(&mine);
}

/* A structure with a gap, sent as a structure and received as its parts. */
static void run_struct(void) {
    typedef struct { char tag; double value; short extra; } record;
    int blocks[3] = {1, 1, 1};
    MPI_Aint offsets[3] = {offsetof(record, tag), offsetof(record, value),
                           offsetof(record, extra)};
    MPI_Datatype parts[3] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    MPI_Datatype packed;
    MPI_Datatype type;
    check_case("MPI_Bcast of structures");
    MPI_Type_create_struct(3, blocks, offsets, parts, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(record), &type);
    MPI_Type_commit(&type);
    record all[5];
    memset(all, 0, sizeof all);
    for (int at = 0; at < 5 && world.rank == 0; at++) {
        all[at] = (record){(char)('a' + at), at * 1.25, (short)(at - 2)};
    }
    MPI_Bcast(all, 5, type, 0, MPI_COMM_WORLD);
    for (int at = 0; at < 5; at++) {
        check_equal('a' + at, all[at].tag, "tag");
        check_that(all[at].value == at * 1.25, "value %d: got %g", at, all[at].value);
        check_equal(at - 2, all[at].extra, "extra");
    }
    MPI_Type_free(&type);
    MPI_Type_free(&packed);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "bcast_types", MPI_THREAD_SINGLE);
    int *buffer = check_memory((size_t)INTS_MAX * SPREAD * sizeof *buffer);
    int *wanted = check_memory((size_t)INTS_MAX * SPREAD * sizeof *wanted);
    for (size_t length = 0; length < sizeof lengths / sizeof lengths[0]; length++) {
        for (int root_layout = 0; root_layout < LAYOUTS; root_layout++) {
            run_case(lengths[length], root_layout, 1, true, buffer, wanted);
            run_case(lengths[length], root_layout, 3, false, buffer, wanted);
        }
    }
    run_struct();
    free(buffer);
    free(wanted);
    return check_finish();
}
