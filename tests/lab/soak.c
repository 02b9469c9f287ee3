/*
 * Mixed operations over a long time, each checked against a reduction computed here.
 *
 * In every round, --depth times for every communicator of shapes.h, seed and round determine operation,
 * datatype, operator, length, root and whether it blocks. The nonblocking operations of a round are
 * outstanding together, on all communicators. The run ends after --operations or --seconds, whichever
 * comes first; only operations on communicators that span hosts count. --first-round continues an earlier
 * run. --short 1 draws only what replicated groups carry: blocking allreduces and barriers of up to 1 KiB.
 * --communicators takes the first ones of shapes.h only. --pause-ms is how long a rank sleeps between two
 * rounds, as if it computed. With --ends FILE rank 0 writes when each round ended, in nanoseconds of the
 * monotonic clock, a line each. Rank 0 prints its progress every ten seconds. One line of JSON at the end has
 * the counts, the next round, and the growth of memory and descriptors after the first fifth.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "shapes.h"
#include "values.h"

enum {
    COUNT_MAX = 1000,
    LONG_COUNT_MAX = 20000,
    EXTENT_MAX = 32,
    SHORT_BYTES_MAX = 1024,
    DEPTH_MAX = 64,
    ROUNDS_PER_CHECK = 32,
    SECONDS_PER_LINE = 10
};
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

/* A communicator and the operations that are outstanding on it. */
typedef struct {
    shape where;
    bool spans_hosts;
    draw draws[DEPTH_MAX];
} lane;

typedef struct {
    uint64_t operations; /* on communicators that span hosts */
    uint64_t local;      /* on the others */
    uint64_t bytes;
} counters;

/* --short */
static bool is_short;

static uint64_t pick(uint64_t salt, uint64_t what, uint64_t below) {
    return check_hash(salt, what, 77) % below;
}

/* Mostly a few elements, sometimes a thousand; rarely, and only first in a round, more. */
static size_t draw_count(uint64_t salt, bool may_be_long) {
    uint64_t kind = pick(salt, 1, 1000);
    if (may_be_long && kind < 16) {
        return 1 + pick(salt, 2, LONG_COUNT_MAX);
    }
    return 1 + pick(salt, 2, kind < 930 ? 32 : COUNT_MAX);
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

/* What replicated groups carry. */
static void draw_short(draw *drawn, uint64_t salt) {
    drawn->salt = salt;
    drawn->what = pick(salt, 3, 100) < 85 ? ALLREDUCE : BARRIER;
    drawn->blocks = true;
    drawn->root = 0;
    draw_type(drawn);
    uint64_t count_max = SHORT_BYTES_MAX / drawn->type->extent;
    drawn->count = 1 + pick(salt, 2, pick(salt, 1, 10) < 8 && count_max > 8 ? 8 : count_max);
}

static void draw_operation(draw *drawn, uint64_t salt, int size, bool may_be_long) {
    if (is_short) {
        draw_short(drawn, salt);
        return;
    }
    drawn->salt = salt;
    uint64_t kind = pick(salt, 3, 100);
    drawn->what = kind < 55 ? ALLREDUCE : kind < 80 ? REDUCE : kind < 90 ? BCAST : BARRIER;
    drawn->blocks = pick(salt, 4, 8) == 0;
    drawn->count = draw_count(salt, may_be_long);
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

/* A broadcast carries the reduction over one rank, so the same oracle checks it. */
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

static void count(const draw *drawn, const lane *on, counters *done) {
    if (on->where.rank != 0) {
        return;
    }
    *(on->spans_hosts ? &done->operations : &done->local) += 1;
    done->bytes += drawn->what == BARRIER ? 0 : drawn->count * drawn->type->extent;
}

static void run_round(uint64_t number, int depth, lane lanes[SHAPES], counters *done) {
    check_case("round %llu", (unsigned long long)number);
    for (int slot = 0; slot < depth; slot++) {
        for (int at = 0; at < SHAPES; at++) {
            const shape *where = &lanes[at].where;
            if (where->comm != MPI_COMM_NULL) {
                draw *drawn = &lanes[at].draws[slot];
                uint64_t salt = (number * SHAPES + (uint64_t)at) * DEPTH_MAX + (uint64_t)slot;
                draw_operation(drawn, salt, where->size, slot == 0);
                fill(drawn, where);
                start(drawn, where->comm);
            }
        }
    }
    for (int slot = 0; slot < depth; slot++) {
        for (int at = 0; at < SHAPES; at++) {
            if (lanes[at].where.comm != MPI_COMM_NULL) {
                finish(&lanes[at].draws[slot], &lanes[at].where);
                count(&lanes[at].draws[slot], &lanes[at], done);
            }
        }
    }
}

/* Whether a communicator has ranks that share no memory. */
static bool spans_hosts(const shape *where) {
    if (where->comm == MPI_COMM_NULL) {
        return false;
    }
    MPI_Comm near;
    int ranks_near;
    PMPI_Comm_split_type(where->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    PMPI_Comm_size(near, &ranks_near);
    PMPI_Comm_free(&near);
    return ranks_near < where->size;
}

static void make_lanes(lane lanes[SHAPES], shape shapes[SHAPES], int communicators, int depth) {
    shapes_make(shapes);
    for (int at = 0; at < SHAPES; at++) {
        lanes[at].where.comm = MPI_COMM_NULL;
    }
    for (int at = 0; at < communicators; at++) {
        lanes[at].where = shapes[at];
        lanes[at].spans_hosts = spans_hosts(&shapes[at]);
        for (int slot = 0; slot < depth; slot++) {
            size_t bytes = (size_t)(slot == 0 ? LONG_COUNT_MAX : COUNT_MAX) * EXTENT_MAX;
            lanes[at].draws[slot].source = check_memory(bytes);
            lanes[at].draws[slot].target = check_memory(bytes);
        }
    }
}

static void free_lanes(lane lanes[SHAPES], shape shapes[SHAPES], int depth) {
    for (int at = 0; at < SHAPES; at++) {
        for (int slot = 0; slot < depth; slot++) {
            free(lanes[at].draws[slot].source);
            free(lanes[at].draws[slot].target);
        }
    }
    shapes_free(shapes);
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

/* The counters summed over all ranks, and whether rank 0 ends the run. */
static counters sum_over_ranks(const counters *mine, uint64_t operations_max, int64_t ends_at, int *is_over) {
    unsigned long long own[3] = {mine->operations, mine->local, mine->bytes};
    unsigned long long all[3] = {0, 0, 0};
    PMPI_Allreduce(own, all, 3, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    *is_over = all[0] >= operations_max || check_now_ns() >= ends_at;
    PMPI_Bcast(is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return (counters){all[0], all[1], all[2]};
}

/* Rank 0 prints its progress. */
static void print_progress(const counters *all, uint64_t round, int64_t started, int64_t *printed_at) {
    int64_t now = check_now_ns();
    if (world.rank == 0 && now - *printed_at >= SECONDS_PER_LINE * 1000000000LL) {
        double seconds = (double)(now - started) / 1e9;
        fprintf(stderr, "soak: %llu operations in %.0f s, %.0f a second, round %llu\n",
                (unsigned long long)all->operations, seconds, (double)all->operations / seconds,
                (unsigned long long)round);
        *printed_at = now;
    }
}

static long largest(long mine) {
    long most = 0;
    PMPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* The text of an option, which is taken out of the arguments: check_start() knows only its own. */
static const char *take_text(int *argc, char **argv, const char *name) {
    for (int at = 1; at + 1 < *argc; at++) {
        if (strcmp(argv[at], name) == 0) {
            const char *value = argv[at + 1];
            memmove(&argv[at], &argv[at + 2], (size_t)(*argc - at - 1) * sizeof *argv);
            *argc -= 2;
            return value;
        }
    }
    return NULL;
}

static double take_option(int *argc, char **argv, const char *name, double otherwise) {
    const char *text = take_text(argc, argv, name);
    return text == NULL ? otherwise : atof(text);
}

/* Where rank 0 writes when rounds end; NULL elsewhere, and where nobody wants to know. */
static FILE *open_ends(const char *name) {
    FILE *file = name != NULL && world.rank == 0 ? fopen(name, "w") : NULL;
    if (file == NULL && name != NULL && world.rank == 0) {
        fprintf(stderr, "--ends: %s can't be written\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return file;
}

static void sleep_ms(double ms) {
    double seconds = floor(ms / 1e3);
    struct timespec time = {(time_t)seconds, (long)((ms - seconds * 1e3) * 1e6)};
    nanosleep(&time, NULL);
}

typedef struct {
    uint64_t operations;
    double seconds;
    uint64_t first_round;
    int communicators;
    int depth;
    double pause_ms;
    const char *ends; /* a file's name, or NULL */
} bounds;

static bounds take_bounds(int *argc, char **argv) {
    bounds taken;
    taken.operations = (uint64_t)take_option(argc, argv, "--operations", 1e18);
    taken.seconds = take_option(argc, argv, "--seconds", 10);
    taken.first_round = (uint64_t)take_option(argc, argv, "--first-round", 1);
    taken.communicators = (int)take_option(argc, argv, "--communicators", SHAPES);
    taken.depth = (int)take_option(argc, argv, "--depth", 8);
    taken.pause_ms = take_option(argc, argv, "--pause-ms", 0);
    is_short = take_option(argc, argv, "--short", 0) != 0;
    taken.ends = take_text(argc, argv, "--ends");
    if (taken.communicators < 1 || taken.communicators > SHAPES) {
        fprintf(stderr, "--communicators: allowed is 1 to %d\n", SHAPES);
        exit(2);
    }
    if (taken.depth < 1 || taken.depth > DEPTH_MAX) {
        fprintf(stderr, "--depth: allowed is 1 to %d\n", DEPTH_MAX);
        exit(2);
    }
    return taken;
}

int main(int argc, char **argv) {
    static shape shapes[SHAPES];
    static lane lanes[SHAPES];
    counters mine = {0, 0, 0};
    counters all = {0, 0, 0};
    int is_over = 0;
    bounds limits = take_bounds(&argc, argv);
    check_start(argc, argv, "soak", MPI_THREAD_SINGLE);
    make_lanes(lanes, shapes, limits.communicators, limits.depth);
    FILE *ends = open_ends(limits.ends);
    int64_t started = check_now_ns();
    int64_t ends_at = started + (int64_t)(limits.seconds * 1e9);
    int64_t settled_at = started + (int64_t)(limits.seconds * 0.2e9);
    int64_t printed_at = started;
    long settled_kib = 0;
    long settled_descriptors = 0;
    uint64_t round = limits.first_round;
    for (; !is_over; round++) {
        if (limits.pause_ms > 0) {
            sleep_ms(limits.pause_ms);
        }
        run_round(round, limits.depth, lanes, &mine);
        if (ends != NULL) {
            fprintf(ends, "%lld\n", (long long)check_now_ns());
        }
        if (round % ROUNDS_PER_CHECK == 0) {
            all = sum_over_ranks(&mine, limits.operations, ends_at, &is_over);
            print_progress(&all, round, started, &printed_at);
        }
        bool is_settled = check_now_ns() >= settled_at || all.operations > limits.operations / 5;
        if (settled_kib == 0 && is_settled) {
            settled_kib = resident_kib();
            settled_descriptors = descriptors();
        }
    }
    long grown_kib = largest(resident_kib() - settled_kib);
    long grown_descriptors = largest(descriptors() - settled_descriptors);
    if (world.rank == 0) {
        printf("{\"ranks\": %d, \"operations\": %llu, \"local\": %llu, \"bytes\": %llu, "
               "\"seconds\": %.1f, \"next_round\": %llu, \"grown_kib\": %ld, "
               "\"grown_descriptors\": %ld}\n",
               world.ranks, (unsigned long long)all.operations, (unsigned long long)all.local,
               (unsigned long long)all.bytes, (double)(check_now_ns() - started) / 1e9,
               (unsigned long long)round, grown_kib, grown_descriptors);
    }
    if (ends != NULL) {
        fclose(ends);
    }
    free_lanes(lanes, shapes, limits.depth);
    return check_finish();
}
