/*
 * Every offloaded collective x datatype x operator x count x in place or not x communicator shape.
 *
 * For reductions these are some 170,000 combinations. --sample N runs every N-th combination of in-place
 * and shape for each (collective, datatype, operator, count), and the seed says which is the first;
 * --sample 1 runs all. The program prints how many of them it ran.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "sample.h"
#include "shapes.h"
#include "values.h"

enum { GUARD_BYTES = 64, COUNT_MAX = 100000, EXTENT_MAX = 32 };
enum { BARRIERS = 4 };

static const size_t counts[] = {0, 1, 2, 7, 8, 63, 64, 1000, 4097, COUNT_MAX};
enum { COUNTS = sizeof counts / sizeof counts[0] };

typedef enum { ALLREDUCE, IALLREDUCE, REDUCE, IREDUCE, REDUCTIONS } reduction;
static const char *const reduction_names[] = {"MPI_Allreduce", "MPI_Iallreduce", "MPI_Reduce",
                                              "MPI_Ireduce"};

/* One reduction to run. */
typedef struct {
    reduction what;
    const value_type *type;
    const value_operator *op;
    size_t count;
    int root;
    setting with;
} trial;

static unsigned char *source;
static unsigned char *target;

/* The longest vectors only for types that have their own kernels: the oracle is slow. */
static bool count_is_for(const value_type *type, size_t count) {
    return count < COUNT_MAX || type->handle == MPI_FLOAT || type->handle == MPI_DOUBLE ||
           type->handle == MPI_INT32_T || type->handle == MPI_DOUBLE_INT;
}

static bool rooted(const trial *run) { return run->what == REDUCE || run->what == IREDUCE; }

static bool has_result(const trial *run) {
    return !rooted(run) || run->with.where->rank == run->root;
}

static void call(const trial *run, const void *from, void *into) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm = run->with.where->comm;
    int count = (int)run->count;
    int code = MPI_SUCCESS;
    if (run->what == ALLREDUCE) {
        code = MPI_Allreduce(from, into, count, run->type->handle, run->op->handle, comm);
    } else if (run->what == IALLREDUCE) {
        code = MPI_Iallreduce(from, into, count, run->type->handle, run->op->handle, comm,
                              &request);
    } else if (run->what == REDUCE) {
        code = MPI_Reduce(from, into, count, run->type->handle, run->op->handle, run->root, comm);
    } else {
        code = MPI_Ireduce(from, into, count, run->type->handle, run->op->handle, run->root, comm,
                           &request);
    }
    check_equal(MPI_SUCCESS, code, "return code");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_that(request == MPI_REQUEST_NULL, "the request is not null after MPI_Wait");
}

static void check_source(const trial *run, size_t bytes) {
    static unsigned char again[COUNT_MAX * EXTENT_MAX];
    values_fill(run->type, run->op, run->with.salt, run->with.where->rank, again, run->count);
    check_that(memcmp(again, source, bytes) == 0, "the send buffer was changed");
}

static void run_trial(const trial *run) {
    const shape *where = run->with.where;
    size_t bytes = run->count * run->type->extent;
    bool in_place = run->with.in_place && has_result(run);
    check_case("%s %s %s count %zu on %s%s root %d", reduction_names[run->what], run->type->name,
               run->op->name, run->count, where->name, run->with.in_place ? " in place" : "",
               run->root);
    memset(target, CHECK_FILL, bytes + GUARD_BYTES);
    values_fill(run->type, run->op, run->with.salt, where->rank, in_place ? target : source,
                run->count);
    call(run, in_place ? MPI_IN_PLACE : source, target);
    if (has_result(run)) {
        values_check(run->type, run->op, run->with.salt, where->size, target, run->count);
    } else {
        check_filled(target, bytes, "receive buffer of a rank that is not the root");
    }
    check_filled(target + bytes, GUARD_BYTES, "behind the receive buffer");
    if (!in_place) {
        check_source(run, bytes);
    }
}

/* Runs the sampled combinations of in-place and shape for one reduction. */
static void run_settings(trial run, const shape shapes[SHAPES], uint64_t product) {
    for (uint64_t pick = 0; pick < SETTINGS; pick++) {
        if (sample_takes_setting(shapes, product, pick, &run.with) &&
            run.with.where->comm != MPI_COMM_NULL) {
            uint64_t size = (uint64_t)run.with.where->size;
            run.root = rooted(&run) ? (int)(check_hash(run.with.salt, 3, 4) % size) : 0;
            run_trial(&run);
        }
    }
}

static void run_reductions(const shape shapes[SHAPES]) {
    uint64_t product = 0;
    trial run = {.root = 0};
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
            for (size_t at = 0; at < (size_t)COUNTS * REDUCTIONS; at++) {
                run.what = (reduction)(at % REDUCTIONS);
                run.count = counts[at / REDUCTIONS];
                product++;
                if (count_is_for(run.type, run.count)) {
                    run_settings(run, shapes, product);
                }
            }
        }
    }
}

static void fill_bytes(unsigned char *buffer, size_t bytes, uint64_t salt, int root) {
    for (size_t at = 0; at < bytes; at++) {
        buffer[at] = (unsigned char)check_hash(salt, (uint64_t)root, at);
    }
}

/* Padding inside pairs may or may not be sent, so scalars are compared one by one. */
static bool same_values(const value_type *type, const unsigned char *wanted,
                        const unsigned char *got, size_t count) {
    for (size_t at = 0; at < count; at++, wanted += type->extent, got += type->extent) {
        if (memcmp(wanted, got, type->value.bytes) != 0 ||
            memcmp(wanted + type->location_offset, got + type->location_offset,
                   type->location.bytes) != 0) {
            return check_that(false, "element %zu is not the root's", at);
        }
    }
    return check_that(true, "all elements");
}

static void run_broadcast(const value_type *type, const shape *where, size_t count, bool blocking,
                          uint64_t salt) {
    size_t bytes = count * type->extent;
    int root = (int)(check_hash(salt, 5, 6) % (uint64_t)where->size);
    MPI_Request request = MPI_REQUEST_NULL;
    check_case("%s %s count %zu on %s root %d", blocking ? "MPI_Bcast" : "MPI_Ibcast", type->name,
               count, where->name, root);
    fill_bytes(source, bytes, salt, root);
    memset(target, CHECK_FILL, bytes + GUARD_BYTES);
    if (where->rank == root) {
        memcpy(target, source, bytes);
    }
    int code = blocking
                   ? MPI_Bcast(target, (int)count, type->handle, root, where->comm)
                   : MPI_Ibcast(target, (int)count, type->handle, root, where->comm, &request);
    check_equal(MPI_SUCCESS, code, "return code");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    same_values(type, source, target, count);
    check_filled(target + bytes, GUARD_BYTES, "behind the buffer");
}

static void run_broadcasts(const shape shapes[SHAPES]) {
    uint64_t salt = 1000000;
    for (size_t type = 0; type < value_types_count; type++) {
        if (!value_type_exists(&value_types[type])) {
            continue;
        }
        for (size_t at = 0; at < (size_t)COUNTS * 2 * SHAPES; at++) {
            const shape *where = &shapes[at % SHAPES];
            size_t count = counts[at / SHAPES / 2];
            salt++;
            if (!count_is_for(&value_types[type], count)) {
                continue;
            }
            if (sample_takes(salt) && where->comm != MPI_COMM_NULL) {
                run_broadcast(&value_types[type], where, count, at / SHAPES % 2 == 0, salt);
            }
        }
    }
}

/* No rank may leave a barrier before all have entered, by this machine's clock. */
static void run_barrier(const shape *where, bool blocking, int round) {
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t last_entry = 0;
    check_case("%s on %s round %d", blocking ? "MPI_Barrier" : "MPI_Ibarrier", where->name, round);
    if (where->rank == round % where->size) {
        check_sleep_us(2000);
    }
    int64_t entered = check_now_ns();
    if (blocking) {
        MPI_Barrier(where->comm);
    } else {
        MPI_Ibarrier(where->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    int64_t left = check_now_ns();
    PMPI_Allreduce(&entered, &last_entry, 1, MPI_INT64_T, MPI_MAX, where->comm);
    check_that(left >= last_entry, "left %lld ns before the last rank had entered",
               (long long)(last_entry - left));
}

static void run_barriers(const shape shapes[SHAPES]) {
    for (int at = 0; at < SHAPES; at++) {
        for (int round = 0; round < 2 * BARRIERS && shapes[at].comm != MPI_COMM_NULL; round++) {
            run_barrier(&shapes[at], round % 2 == 0, round / 2);
        }
    }
}

int main(int argc, char **argv) {
    shape shapes[SHAPES];
    check_start(argc, argv, "collectives", MPI_THREAD_SINGLE);
    source = check_memory((size_t)COUNT_MAX * EXTENT_MAX + GUARD_BYTES);
    target = check_memory((size_t)COUNT_MAX * EXTENT_MAX + GUARD_BYTES);
    shapes_make(shapes);
    run_barriers(shapes);
    run_reductions(shapes);
    run_broadcasts(shapes);
    check_case("freeing communicators");
    shapes_free(shapes);
    if (world.rank == 0) {
        printf("collectives: %s, and %d barriers\n", sample_summary(), 2 * BARRIERS * SHAPES);
    }
    return check_finish();
}
