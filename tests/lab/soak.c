/*
 * Mixed operations for long, each checked against a reduction computed here.
 *
 * Operation, datatype, operator, length, root and whether it blocks are drawn from the seed, anew
 * for every communicator of shapes.h in every round. Nonblocking operations of one round are under
 * way together, on all communicators. --operations and --seconds bound the run, whichever comes
 * first. One line of JSON at the end says what ran and whether this program's memory and
 * descriptors grew after the first fifth.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "shapes.h"
#include "values.h"

enum { COUNT_MAX = 20000, EXTENT_MAX = 32, ROUNDS_PER_LOOK = 64 };
typedef enum { ALLREDUCE, REDUCE, BCAST, BARRIER } operation;

typedef struct {
    operation what;
    bool blocks;
    const value_type *type;
    const value_operator *op;
    size_t count;
    int root;
    uint64_t salt;
    MPI_Request request;
    unsigned char *source;
    unsigned char *target;
} draw;

typedef struct {
    uint64_t operations;
    uint64_t bytes;
} tally;

static uint64_t pick(uint64_t salt, uint64_t what, uint64_t below) {
    return check_hash(salt, what, 77) % below;
}

/* Mostly a few elements, sometimes a thousand, seldom many. */
static size_t draw_count(uint64_t salt) {
    uint64_t kind = pick(salt, 1, 100);
    if (kind < 80) {
        return 1 + pick(salt, 2, 32);
    }
    return 1 + pick(salt, 2, kind < 98 ? 1000 : COUNT_MAX);
}

static void draw_type(draw *drawn) {
    for (uint64_t attempt = 0;; attempt += 2) {
        drawn->type = &value_types[pick(drawn->salt, 10 + attempt, value_types_count)];
        drawn->op = &value_operators[pick(drawn->salt, 11 + attempt, value_operators_count)];
        if ((drawn->type->operators & drawn->op->set) != 0 && value_type_exists(drawn->type)) {
            return;
        }
    }
}

static void draw_operation(draw *drawn, uint64_t salt, int size) {
    drawn->salt = salt;
    uint64_t kind = pick(salt, 3, 100);
    drawn->what = kind < 55 ? ALLREDUCE : kind < 80 ? REDUCE : kind < 90 ? BCAST : BARRIER;
    drawn->blocks = pick(salt, 4, 2) == 0;
    drawn->count = draw_count(salt);
    drawn->root = (int)pick(salt, 5, (uint64_t)size);
    draw_type(drawn);
}

static void start(draw *drawn, MPI_Comm comm) {
    int count = (int)drawn->count;
    MPI_Datatype type = drawn->type->handle;
    MPI_Op op = drawn->op->handle;
    drawn->request = MPI_REQUEST_NULL;
    if (drawn->what == ALLREDUCE && drawn->blocks) {
        MPI_Allreduce(drawn->source, drawn->target, count, type, op, comm);
    } else if (drawn->what == ALLREDUCE) {
        MPI_Iallreduce(drawn->source, drawn->target, count, type, op, comm, &drawn->request);
    } else if (drawn->what == REDUCE && drawn->blocks) {
        MPI_Reduce(drawn->source, drawn->target, count, type, op, drawn->root, comm);
    } else if (drawn->what == REDUCE) {
        MPI_Ireduce(drawn->source, drawn->target, count, type, op, drawn->root, comm,
                    &drawn->request);
    } else if (drawn->what == BCAST && drawn->blocks) {
        MPI_Bcast(drawn->target, count, type, drawn->root, comm);
    } else if (drawn->what == BCAST) {
        MPI_Ibcast(drawn->target, count, type, drawn->root, comm, &drawn->request);
    } else if (drawn->blocks) {
        MPI_Barrier(comm);
    } else {
        MPI_Ibarrier(comm, &drawn->request);
    }
}

/* A broadcast carries the reduction over one rank, so that the same oracle knows it. */
static void fill(draw *drawn, const shape *where) {
    size_t bytes = drawn->count * drawn->type->extent;
    bool is_root = where->rank == drawn->root;
    memset(drawn->target, 0xA5, bytes);
    if (drawn->what == BCAST && is_root) {
        values_fill(drawn->type, drawn->op, drawn->salt, 0, drawn->target, drawn->count);
    } else if (drawn->what == ALLREDUCE || drawn->what == REDUCE) {
        values_fill(drawn->type, drawn->op, drawn->salt, where->rank, drawn->source, drawn->count);
    }
}

static void finish(draw *drawn, const shape *where) {
    MPI_Wait(&drawn->request, MPI_STATUS_IGNORE);
    bool has_result = drawn->what == ALLREDUCE || drawn->what == BCAST ||
                      (drawn->what == REDUCE && where->rank == drawn->root);
    if (has_result) {
        int contributors = drawn->what == BCAST ? 1 : where->size;
        values_check(drawn->type, drawn->op, drawn->salt, contributors, drawn->target,
                     drawn->count);
    }
}

static void count(const draw *drawn, const shape *where, tally *done) {
    if (where->rank == 0) {
        done->operations++;
        done->bytes += drawn->what == BARRIER ? 0 : drawn->count * drawn->type->extent;
    }
}

static void run_round(uint64_t number, const shape shapes[SHAPES], draw draws[SHAPES],
                      tally *done) {
    check_case("round %llu", (unsigned long long)number);
    for (int at = 0; at < SHAPES; at++) {
        if (shapes[at].comm != MPI_COMM_NULL) {
            draw_operation(&draws[at], number * SHAPES + (uint64_t)at, shapes[at].size);
            fill(&draws[at], &shapes[at]);
            start(&draws[at], shapes[at].comm);
        }
    }
    for (int at = 0; at < SHAPES; at++) {
        if (shapes[at].comm != MPI_COMM_NULL) {
            finish(&draws[at], &shapes[at]);
            count(&draws[at], &shapes[at], done);
        }
    }
}

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) {
        pages = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return pages * 4;
}

static long descriptors(void) {
    long open = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        open++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return open;
}

/* What all ranks have done so far, and whether rank 0 says that it is enough. */
static tally look_around(const tally *mine, uint64_t operations_max, int64_t ends_at, int *is_over) {
    unsigned long long own[2] = {mine->operations, mine->bytes};
    unsigned long long all[2] = {0, 0};
    PMPI_Allreduce(own, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    *is_over = all[0] >= operations_max || check_now_ns() >= ends_at;
    PMPI_Bcast(is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return (tally){all[0], all[1]};
}

static long largest(long mine) {
    long most = 0;
    PMPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* The value of an option, which is taken out of the arguments: check_start() knows only its own. */
static double take_option(int *argc, char **argv, const char *name, double otherwise) {
    for (int at = 1; at + 1 < *argc; at++) {
        if (strcmp(argv[at], name) == 0) {
            double value = atof(argv[at + 1]);
            memmove(&argv[at], &argv[at + 2], (size_t)(*argc - at - 1) * sizeof *argv);
            *argc -= 2;
            return value;
        }
    }
    return otherwise;
}

int main(int argc, char **argv) {
    static shape shapes[SHAPES];
    static draw draws[SHAPES];
    tally mine = {0, 0};
    tally all = {0, 0};
    int is_over = 0;
    uint64_t operations_max = (uint64_t)take_option(&argc, argv, "--operations", 1e18);
    double seconds = take_option(&argc, argv, "--seconds", 10);
    check_start(argc, argv, "soak", MPI_THREAD_SINGLE);
    shapes_make(shapes);
    for (int at = 0; at < SHAPES; at++) {
        draws[at].source = check_memory((size_t)COUNT_MAX * EXTENT_MAX);
        draws[at].target = check_memory((size_t)COUNT_MAX * EXTENT_MAX);
    }
    int64_t started = check_now_ns();
    int64_t ends_at = started + (int64_t)(seconds * 1e9);
    int64_t settled_at = started + (int64_t)(seconds * 0.2e9);
    long settled_kib = 0;
    long settled_descriptors = 0;
    for (uint64_t number = 1; !is_over; number++) {
        run_round(number, shapes, draws, &mine);
        if (number % ROUNDS_PER_LOOK == 0) {
            all = look_around(&mine, operations_max, ends_at, &is_over);
        }
        bool is_settled = check_now_ns() >= settled_at || all.operations > operations_max / 5;
        if (settled_kib == 0 && is_settled) {
            settled_kib = resident_kib();
            settled_descriptors = descriptors();
        }
    }
    long grown_kib = largest(resident_kib() - settled_kib);
    long grown_descriptors = largest(descriptors() - settled_descriptors);
    if (world.rank == 0) {
        printf("{\"ranks\": %d, \"operations\": %llu, \"bytes\": %llu, \"seconds\": %.1f, "
               "\"grown_kib\": %ld, \"grown_descriptors\": %ld}\n",
               world.ranks, (unsigned long long)all.operations, (unsigned long long)all.bytes,
               (double)(check_now_ns() - started) / 1e9, grown_kib, grown_descriptors);
    }
    for (int at = 0; at < SHAPES; at++) {
        free(draws[at].source);
        free(draws[at].target);
    }
    shapes_free(shapes);
    return check_finish();
}
