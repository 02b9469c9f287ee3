/*
 * Reduce_scatter, Reduce_scatter_block, Scan, Exscan and Allgather, blocking and nonblocking: every
 * datatype and operator on lengths at which the algorithm changes, in place and not, on communicators of
 * every shape; allgathers whose ranks describe the same values differently; and Allgatherv, with blocks that
 * differ, lie anywhere, or are empty.
 *
 * As in collectives.c, --sample N runs every N-th combination.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "layouts.h"
#include "sample.h"
#include "shapes.h"
#include "values.h"

enum { GUARD_BYTES = 64, COUNT_MAX = 60000, EXTENT_MAX = 32, GAP = -77 };
enum { RANKS_MAX = 32, INTS_MAX = 20000, BLOCK_INTS_MAX = 1000, BLOCK_GAP_MAX = 2, STRIDE_MAX = 2 };

/* Elements of a scan, or about so many in all blocks of a reduce-scatter. */
static const size_t counts[] = {0, 1, 2, 7, 64, 1000, 4097, COUNT_MAX};
enum { COUNTS = sizeof counts / sizeof counts[0] };

typedef enum { SCATTER, SCATTER_BLOCK, SCAN, EXSCAN, KINDS } kind;
static const char *const kind_names[] = {"Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"};

/* One reduction to run. */
typedef struct {
    kind what;
    bool blocking;
    const value_type *type;
    const value_operator *op;
    size_t count; /* elements that each rank contributes */
    int blocks[RANKS_MAX];
    setting with;
} trial;

static unsigned char *source;
static unsigned char *target;

/* The longest vectors only for types that have their own kernels: the oracle is slow. */
static bool count_is_for(const value_type *type, size_t count) {
    return count < COUNT_MAX || type->handle == MPI_FLOAT || type->handle == MPI_DOUBLE_INT ||
           type->handle == MPI_INT8_T;
}

/* Blocks of different lengths, some of them empty, or all of one length. */
static void deal(trial *run) {
    size_t size = (size_t)run->with.where->size;
    size_t all = 0;
    for (size_t rank = 0; rank < size; rank++) {
        size_t even = run->count / size;
        size_t any = check_hash(run->with.salt, rank, 9) % (2 * even + 2);
        run->blocks[rank] = (int)(run->what == SCATTER_BLOCK ? even : any);
        all += (size_t)run->blocks[rank];
    }
    run->count = all;
}

static int call_blocking(const trial *run, const void *from, void *into) {
    MPI_Datatype type = run->type->handle;
    MPI_Op op = run->op->handle;
    MPI_Comm comm = run->with.where->comm;
    switch (run->what) {
    case SCATTER:
        return MPI_Reduce_scatter(from, into, run->blocks, type, op, comm);
    case SCATTER_BLOCK:
        return MPI_Reduce_scatter_block(from, into, run->blocks[0], type, op, comm);
    case SCAN:
        return MPI_Scan(from, into, (int)run->count, type, op, comm);
    default:
        return MPI_Exscan(from, into, (int)run->count, type, op, comm);
    }
}

static int call_nonblocking(const trial *run, const void *from, void *into) {
    MPI_Datatype type = run->type->handle;
    MPI_Op op = run->op->handle;
    MPI_Comm comm = run->with.where->comm;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    switch (run->what) {
    case SCATTER:
        code = MPI_Ireduce_scatter(from, into, run->blocks, type, op, comm, &request);
        break;
    case SCATTER_BLOCK:
        code = MPI_Ireduce_scatter_block(from, into, run->blocks[0], type, op, comm, &request);
        break;
    case SCAN:
        code = MPI_Iscan(from, into, (int)run->count, type, op, comm, &request);
        break;
    default:
        code = MPI_Iexscan(from, into, (int)run->count, type, op, comm, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_that(request == MPI_REQUEST_NULL, "the request is not null after MPI_Wait");
    return code;
}

/* How many elements of the result this rank has, from which on, and over how many ranks. */
static size_t result_of(const trial *run, size_t *first, int *ranks) {
    int own = run->with.where->rank;
    *first = 0;
    *ranks = run->with.where->size;
    if (run->what == SCAN || run->what == EXSCAN) {
        *ranks = own + (run->what == SCAN);
        return *ranks > 0 ? run->count : 0;
    }
    for (int rank = 0; rank < own; rank++) {
        *first += (size_t)run->blocks[rank];
    }
    return (size_t)run->blocks[own];
}

static void check_source(const trial *run, size_t bytes) {
    static unsigned char again[COUNT_MAX * 4 * EXTENT_MAX];
    values_fill(run->type, run->op, run->with.salt, run->with.where->rank, again, run->count);
    check_that(memcmp(again, source, bytes) == 0, "the send buffer was changed");
}

static void run_trial(trial *run) {
    bool in_place = run->with.in_place;
    size_t first = 0;
    int ranks = 0;
    if (run->what == SCATTER || run->what == SCATTER_BLOCK) {
        deal(run);
    }
    size_t bytes = run->count * run->type->extent;
    check_case("MPI_%s%s %s %s count %zu on %s%s", run->blocking ? "" : "I", kind_names[run->what],
               run->type->name, run->op->name, run->count, run->with.where->name,
               in_place ? " in place" : "");
    memset(target, CHECK_FILL, bytes + GUARD_BYTES);
    values_fill(run->type, run->op, run->with.salt, run->with.where->rank,
                in_place ? target : source, run->count);
    const void *from = in_place ? MPI_IN_PLACE : (const void *)source;
    int code = run->blocking ? call_blocking(run, from, target) : call_nonblocking(run, from, target);
    check_equal(MPI_SUCCESS, code, "return code");
    size_t results = result_of(run, &first, &ranks);
    values_check_block(run->type, run->op, run->with.salt, ranks, target, first, results);
    check_filled(target + bytes, GUARD_BYTES, "behind the vector");
    if (!in_place) {
        size_t used = results * run->type->extent;
        check_filled(target + used, bytes - used, "behind the result");
        check_source(run, bytes);
    }
}

/* Runs the sampled combinations of in-place and shape for one collective. */
static void run_settings(trial run, const shape shapes[SHAPES], uint64_t product) {
    for (uint64_t pick = 0; pick < SETTINGS; pick++) {
        trial one = run;
        if (sample_takes_setting(shapes, product, pick, &one.with) &&
            one.with.where->comm != MPI_COMM_NULL) {
            run_trial(&one);
        }
    }
}

static void run_reductions(const shape shapes[SHAPES]) {
    uint64_t product = 0;
    trial run = {.what = SCATTER};
    for (size_t type = 0; type < value_types_count; type++) {
        run.type = &value_types[type];
        if (!value_type_exists(run.type)) {
            continue;
        }
        for (size_t op = 0; op < value_operators_count; op++) {
            run.op = &value_operators[op];
            if ((run.op->set & run.type->operators) == 0) {
                continue;
            }
            for (size_t at = 0; at < (size_t)COUNTS * KINDS * 2; at++) {
                run.blocking = at % 2 == 0;
                run.what = (kind)(at / 2 % KINDS);
                run.count = counts[at / 2 / KINDS];
                product++;
                if (count_is_for(run.type, run.count)) {
                    run_settings(run, shapes, product);
                }
            }
        }
    }
}

/* A rank that gets no result may pass no receive buffer. */
static void run_without_buffers(void) {
    int none[RANKS_MAX] = {0};
    int ones[RANKS_MAX];
    int sum = 0;
    bool is_first = world.rank == 0;
    for (int rank = 0; rank < world.ranks; rank++) {
        ones[rank] = 1;
    }
    check_case("MPI_Reduce_scatter with one block");
    none[0] = 1;
    MPI_Reduce_scatter(ones, is_first ? &sum : NULL, none, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(is_first ? world.ranks : 0, sum, "sum");
    check_case("MPI_Exscan without a receive buffer at rank 0");
    sum = 0;
#ifdef MPICH_VERSION /* refuses a null pointer there */
    is_first = false;
#endif
    MPI_Exscan(ones, is_first ? NULL : &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.rank, sum, "sum");
}

static int value_at(uint64_t salt, int rank, int index) {
    return (int)(check_hash(salt, (uint64_t)rank, (uint64_t)index) & 0x7fffffff);
}

static void fill_gaps(int *buffer, size_t ints) {
    for (size_t at = 0; at < ints; at++) {
        buffer[at] = GAP;
    }
}

/* The position in memory of the i-th int of a rank's part. */
static size_t place_of(const layout *of, int rank, int index, int ints) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    PMPI_Type_get_extent(of->type, &lower, &extent);
    size_t part = (size_t)of->count * (size_t)extent / sizeof(int);
    return (size_t)rank * part + (size_t)of->position(index, ints);
}

static void check_gathered(const layout *mine, const shape *where, int ints, uint64_t salt,
                           const int *got) {
    static int wanted[INTS_MAX * LAYOUTS_SPREAD * RANKS_MAX];
    size_t room = (size_t)ints * LAYOUTS_SPREAD * (size_t)where->size;
    fill_gaps(wanted, room);
    for (int rank = 0; rank < where->size; rank++) {
        for (int index = 0; index < ints; index++) {
            wanted[place_of(mine, rank, index, ints)] = value_at(salt, rank, index);
        }
    }
    for (size_t at = 0; at < room; at++) {
        if (wanted[at] != got[at]) {
            check_that(false, "int %zu of the buffer: expected %d, got %d", at, wanted[at], got[at]);
            return;
        }
    }
    check_that(true, "buffer");
}

typedef struct {
    layout send;
    layout receive;
    bool in_place;
    bool blocking;
} gather;

static void allgather(const gather *with, const int *from, int *into, MPI_Comm comm) {
    const layout *send = &with->send;
    const layout *receive = &with->receive;
    const void *sent = with->in_place ? MPI_IN_PLACE : (const void *)from;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = with->blocking ? MPI_Allgather(sent, send->count, send->type, into, receive->count,
                                              receive->type, comm)
                              : MPI_Iallgather(sent, send->count, send->type, into, receive->count,
                                               receive->type, comm, &request);
    check_equal(MPI_SUCCESS, code, "return code");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* `shift` and its rank determine the two layouts of a rank. */
static void run_gather(const shape *where, int ints, int shift) {
    uint64_t salt = check_hash((uint64_t)ints, (uint64_t)shift, (uint64_t)where->size);
    int *from = (int *)source;
    int *into = (int *)target;
    size_t room = (size_t)ints * LAYOUTS_SPREAD * (size_t)where->size;
    gather with = {
        .send = layout_make((where->rank + shift) % LAYOUTS, ints),
        .receive = layout_make((2 * where->rank + shift / LAYOUTS) % LAYOUTS, ints),
        .in_place = shift % 3 == 0,
        .blocking = shift % 2 == 0,
    };
    check_case("MPI_%sallgather of %d ints on %s, from %s to %s%s", with.blocking ? "" : "I", ints,
               where->name, with.send.name, with.receive.name, with.in_place ? " in place" : "");
    fill_gaps(from, room);
    fill_gaps(into, room);
    for (int index = 0; index < ints; index++) {
        int value = value_at(salt, where->rank, index);
        if (with.in_place) {
            into[place_of(&with.receive, where->rank, index, ints)] = value;
        } else {
            from[with.send.position(index, ints)] = value;
        }
    }
    allgather(&with, from, into, where->comm);
    check_gathered(&with.receive, where, ints, salt, into);
    layout_free(&with.send);
    layout_free(&with.receive);
}

static void run_gathers(const shape shapes[SHAPES]) {
    static const int lengths[] = {2, 14, 1000, 1040, 4096, INTS_MAX};
    for (size_t at = 0; at < sizeof lengths / sizeof lengths[0]; at++) {
        int shifts = lengths[at] == INTS_MAX ? 4 : LAYOUTS * LAYOUTS;
        for (int shift = 0; shift < shifts; shift++) {
            const shape *where = &shapes[(at + (size_t)shift) % SHAPES];
            if (where->comm != MPI_COMM_NULL) {
                run_gather(where, lengths[at], shift);
            }
        }
    }
}

/* The blocks of an allgatherv, as one rank has them in its buffer. */
typedef struct {
    int ints[RANKS_MAX]; /* of each rank; alike at all ranks */
    int places[RANKS_MAX];
    MPI_Datatype type;
    int stride; /* ints from one element to the next */
    int room;   /* elements of the whole buffer */
} blocks;

/* Blocks of up to `most` ints. This rank's `variant` says in which order they lie, and with what between them. */
static void lay_out(blocks *made, const shape *where, int most, uint64_t salt, int variant) {
    bool is_equal = salt % 4 == 0;
    made->room = 0;
    for (int at = 0; at < where->size; at++) {
        int rank = variant % 2 == 0 ? at : where->size - 1 - at;
        made->ints[rank] =
            is_equal ? most : (int)(check_hash(salt, (uint64_t)rank, 5) % ((uint64_t)most + 1));
        made->places[rank] = made->room;
        made->room += made->ints[rank] + (variant % 3 == 0 ? 0 : BLOCK_GAP_MAX);
    }
    made->stride = variant % 5 == 4 ? STRIDE_MAX : 1;
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)sizeof(int) * made->stride, &made->type);
    MPI_Type_commit(&made->type);
}

/* Where a rank's i-th int lies. */
static size_t spot(const blocks *of, int rank, int index) {
    return ((size_t)of->places[rank] + (size_t)index) * (size_t)of->stride;
}

static void check_blocks(const blocks *of, const shape *where, uint64_t salt, const int *got) {
    static int wanted[(BLOCK_INTS_MAX + BLOCK_GAP_MAX) * STRIDE_MAX * RANKS_MAX];
    size_t room = (size_t)of->room * (size_t)of->stride;
    fill_gaps(wanted, room);
    for (int rank = 0; rank < where->size; rank++) {
        for (int index = 0; index < of->ints[rank]; index++) {
            wanted[spot(of, rank, index)] = value_at(salt, rank, index);
        }
    }
    for (size_t at = 0; at < room; at++) {
        if (!check_that(wanted[at] == got[at], "int %zu of the buffer: expected %d, got %d", at,
                        wanted[at], got[at])) {
            return;
        }
    }
}

static void run_blocks(const shape *where, int most, int shift) {
    uint64_t salt = check_hash((uint64_t)most, (uint64_t)shift, 17) * 4 + (uint64_t)shift % 4;
    bool in_place = shift % 3 == 0;
    bool blocking = shift % 2 == 0;
    blocks with;
    int *from = (int *)source;
    int *into = (int *)target;
    MPI_Request request = MPI_REQUEST_NULL;
    lay_out(&with, where, most, salt, where->rank + shift);
    int own = with.ints[where->rank];
    check_case("MPI_%sallgatherv of up to %d ints on %s%s", blocking ? "" : "I", most, where->name,
               in_place ? " in place" : "");
    fill_gaps(into, (size_t)with.room * (size_t)with.stride);
    for (int index = 0; index < own; index++) {
        int value = value_at(salt, where->rank, index);
        *(in_place ? &into[spot(&with, where->rank, index)] : &from[index]) = value;
    }
    const void *sent = in_place ? MPI_IN_PLACE : (const void *)from;
    int code = blocking ? MPI_Allgatherv(sent, own, MPI_INT, into, with.ints, with.places, with.type,
                                         where->comm)
                        : MPI_Iallgatherv(sent, own, MPI_INT, into, with.ints, with.places,
                                          with.type, where->comm, &request);
    check_equal(MPI_SUCCESS, code, "return code");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_blocks(&with, where, salt, into);
    MPI_Type_free(&with.type);
}

static void run_all_blocks(const shape shapes[SHAPES]) {
    static const int lengths[] = {1, 3, 40, BLOCK_INTS_MAX};
    for (size_t at = 0; at < sizeof lengths / sizeof lengths[0]; at++) {
        for (int shift = 0; shift < 60; shift++) {
            const shape *where = &shapes[(at + (size_t)shift) % SHAPES];
            if (where->comm != MPI_COMM_NULL) {
                run_blocks(where, lengths[at], shift);
            }
        }
    }
}

#if MPI_VERSION >= 4
/* The forms with MPI_Count differ only in the type of the count. */
static void run_large_counts(void) {
    MPI_Count counted[RANKS_MAX];
    int ones[RANKS_MAX];
    int all[RANKS_MAX] = {0};
    int sum = 0;
    for (int rank = 0; rank < world.ranks; rank++) {
        ones[rank] = 1;
        counted[rank] = rank == 0 ? 0 : 1;
    }
    check_case("the forms with MPI_Count");
    MPI_Scan_c(ones, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.rank + 1, sum, "MPI_Scan_c");
    sum = 0;
    MPI_Exscan_c(ones, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.rank, sum, "MPI_Exscan_c");
    sum = 0;
    MPI_Reduce_scatter_c(ones, &sum, counted, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.rank == 0 ? 0 : world.ranks, sum, "MPI_Reduce_scatter_c");
    MPI_Reduce_scatter_block_c(ones, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.ranks, sum, "MPI_Reduce_scatter_block_c");
    MPI_Allgather_c(&world.rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int rank = 0; rank < world.ranks; rank++) {
        check_equal(rank, all[rank], "MPI_Allgather_c");
    }
    MPI_Aint places[RANKS_MAX];
    for (int rank = 0; rank < world.ranks; rank++) {
        places[rank] = world.ranks - rank;
    }
    MPI_Allgatherv_c(&world.rank, world.rank != 0, MPI_INT, all, counted, places, MPI_INT,
                     MPI_COMM_WORLD);
    for (int rank = 1; rank < world.ranks; rank++) {
        check_equal(rank, all[world.ranks - rank], "MPI_Allgatherv_c");
    }
}
#endif

int main(int argc, char **argv) {
    shape shapes[SHAPES];
    check_start(argc, argv, "further", MPI_THREAD_SINGLE);
    /* The longest buffers: gathered ints with gaps, or a vector of pairs. */
    size_t bytes = (size_t)INTS_MAX * LAYOUTS_SPREAD * RANKS_MAX * sizeof(int);
    source = check_memory(bytes + GUARD_BYTES);
    target = check_memory(bytes + GUARD_BYTES);
    shapes_make(shapes);
    run_without_buffers();
    run_reductions(shapes);
    run_gathers(shapes);
    run_all_blocks(shapes);
#if MPI_VERSION >= 4
    run_large_counts();
#endif
    check_case("freeing communicators");
    shapes_free(shapes);
    /* Every run offloads this one, which goes between hosts too. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (world.rank == 0) {
        printf("further: %s\n", sample_summary());
    }
    return check_finish();
}
