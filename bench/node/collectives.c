/*
 * Times MPI collectives, for bench/node/node.py.
 *
 * Arguments are cases, `operation:bytes` (allreduce, reduce, bcast, barrier, allgather, reduce_scatter,
 * scan, and allreduce_complex and allreduce_operator of the same bytes). Floats are summed, complex ones, or
 * by an operator of the program; `bytes` is the length of one rank's vector. A block is as many calls in a row
 * as take about BLOCK_NS; its time is that of the slowest rank, divided by the calls. With `:apart` behind a
 * case MPI_Barrier precedes each call and is not counted, as in IMB. Blocks of all cases alternate, so that a
 * slow moment of the machine affects every case alike. Rank 0 prints one line a case:
 *
 *     case calls median_ns least_ns switches
 *
 * where `switches` is the context switches of all ranks per call, voluntary and not. Timing,
 * agreement and checking go through PMPI_, around any preloaded library. Fails if a result is wrong.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "measure.h"

enum { BLOCKS = 51, GUESSES = 5, BLOCK_NS = 1000000, CALLS_MAX = 20000, CASES_MAX = 32, WATCHDOG_S = 120 };

typedef struct bench_case {
    const char *name;
    void (*call)(size_t elements);
    size_t elements;
    bool is_apart;
    int calls;
    double block_ns[BLOCKS];
    double switches;
} bench_case;

static int rank;
static int ranks;
static float *source;
static float *target;

static void call_allreduce(size_t elements) {
    MPI_Allreduce(source, target, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_allreduce_complex(size_t elements) {
    MPI_Allreduce(source, target, (int)elements / 2, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
}

static MPI_Op own_sum;

static void add_floats(void *in, void *inout, int *length, MPI_Datatype *type) {
    const float *left = in;
    float *right = inout;
    (void)type;
    for (int at = 0; at < *length; at++) {
        right[at] = left[at] + right[at];
    }
}

static void call_allreduce_operator(size_t elements) {
    MPI_Allreduce(source, target, (int)elements, MPI_FLOAT, own_sum, MPI_COMM_WORLD);
}

static bool is_allreduce(void (*call)(size_t elements)) {
    return call == call_allreduce || call == call_allreduce_complex ||
           call == call_allreduce_operator;
}

static void call_reduce(size_t elements) {
    MPI_Reduce(source, target, (int)elements, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void call_bcast(size_t elements) {
    MPI_Bcast(rank == 0 ? source : target, (int)elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_barrier(size_t elements) {
    (void)elements;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void call_allgather(size_t elements) {
    MPI_Allgather(source, (int)elements, MPI_FLOAT, target, (int)elements, MPI_FLOAT,
                  MPI_COMM_WORLD);
}

static void call_reduce_scatter(size_t elements) {
    MPI_Reduce_scatter_block(source, target, (int)elements / ranks, MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
}

static void call_scan(size_t elements) {
    MPI_Scan(source, target, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*call)(size_t elements);
} operations[] = {
    {"allreduce", call_allreduce}, {"reduce", call_reduce},
    {"bcast", call_bcast},         {"barrier", call_barrier},
    {"allgather", call_allgather}, {"reduce_scatter", call_reduce_scatter},
    {"scan", call_scan},           {"allreduce_complex", call_allreduce_complex},
    {"allreduce_operator", call_allreduce_operator},
};

static void give_up(const char *problem, const char *what) {
    fprintf(stderr, "collectives: %s: %s\n", problem, what);
    PMPI_Abort(MPI_COMM_WORLD, 2);
}

static double switches_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_nvcsw + (double)usage.ru_nivcsw;
}

static void parse(const char *text, bench_case *into) {
    const char *colon = strchr(text, ':');
    char *end = NULL;
    size_t bytes = colon != NULL ? strtoull(colon + 1, &end, 10) : 0;
    bool is_apart = end != NULL && strcmp(end, ":apart") == 0;
    if (end == NULL || end == colon + 1 || (*end != '\0' && !is_apart) || bytes % sizeof(float) != 0) {
        give_up("not a case (operation:bytes or operation:bytes:apart, whole floats)", text);
    }
    *into = (bench_case){.name = text, .elements = bytes / sizeof(float), .is_apart = is_apart};
    for (size_t at = 0; at < sizeof operations / sizeof *operations; at++) {
        size_t length = strlen(operations[at].name);
        if (length == (size_t)(colon - text) && strncmp(text, operations[at].name, length) == 0) {
            into->call = operations[at].call;
        }
    }
    if (into->call == NULL) {
        give_up("no such operation", text);
    }
}

static double in_a_row_ns(const bench_case *of, int calls) {
    double started = now_ns();
    for (int at = 0; at < calls; at++) {
        of->call(of->elements);
    }
    return now_ns() - started;
}

static double apart_ns(const bench_case *of, int calls) {
    double sum = 0;
    for (int at = 0; at < calls; at++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double started = now_ns();
        of->call(of->elements);
        sum += now_ns() - started;
    }
    return sum;
}

/* The slowest rank's time per call. */
static double block_ns(const bench_case *of, int calls) {
    double slowest = 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    double elapsed = (of->is_apart ? apart_ns : in_a_row_ns)(of, calls) / calls;
    PMPI_Allreduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Every rank's source holds rank + 1 in every element. */
static void check(const bench_case *of) {
    float sum = (float)(ranks * (ranks + 1)) / 2;
    size_t last = of->elements == 0 ? 0 : of->elements - 1;
    if (is_allreduce(of->call) && (target[0] != sum || target[last] != sum)) {
        give_up("wrong sum", of->name);
    }
    if (of->call == call_reduce && rank == 0 && (target[0] != sum || target[last] != sum)) {
        give_up("wrong sum", of->name);
    }
    if (of->call == call_bcast && rank != 0 && (target[0] != 1 || target[last] != 1)) {
        give_up("wrong value", of->name);
    }
    if (of->call == call_scan && target[last] != (float)((rank + 1) * (rank + 2)) / 2) {
        give_up("wrong prefix sum", of->name);
    }
    if (of->call == call_reduce_scatter && target[0] != sum) {
        give_up("wrong sum", of->name);
    }
    if (of->call == call_allgather && target[last * (size_t)ranks] != (float)ranks && last == 0) {
        give_up("wrong value", of->name);
    }
}

/* The least of a few blocks: if a rank lost its core in one of them, blocks would get too short. */
static double least_ns(const bench_case *of, int calls) {
    double least = block_ns(of, calls);
    for (int guess = 1; guess < GUESSES; guess++) {
        double again = block_ns(of, calls);
        least = again < least ? again : least;
    }
    return least;
}

/* So many calls that a block takes BLOCK_NS, equal at all ranks. */
static int calibrate(const bench_case *of) {
    block_ns(of, 2);
    double calls = BLOCK_NS / least_ns(of, 5);
    calls = BLOCK_NS / least_ns(of, calls > 200 ? 200 : calls < 1 ? 1 : (int)calls);
    return calls > CALLS_MAX ? CALLS_MAX : calls < 3 ? 3 : (int)calls;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void time_blocks(bench_case *cases, int count) {
    for (int block = 0; block < BLOCKS; block++) {
        for (int at = 0; at < count; at++) {
            double before = switches_now();
            cases[at].block_ns[block] = block_ns(&cases[at], cases[at].calls);
            cases[at].switches += switches_now() - before;
            if (cases[at].elements != 0) {
                check(&cases[at]);
            }
        }
    }
}

static void print(bench_case *of) {
    double all = 0;
    PMPI_Reduce(&of->switches, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    qsort(of->block_ns, BLOCKS, sizeof(double), compare);
    if (rank == 0) {
        printf("%s %d %.1f %.1f %.3f\n", of->name, of->calls, of->block_ns[BLOCKS / 2],
               of->block_ns[0], all / BLOCKS / of->calls);
    }
}

int main(int argc, char **argv) {
    static bench_case cases[CASES_MAX];
    alarm(WATCHDOG_S);
    MPI_Init(&argc, &argv);
    MPI_Op_create(add_floats, 1, &own_sum);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int count = argc - 1;
    if (count < 1 || count > CASES_MAX) {
        give_up("needs 1 to 32 cases", "operation:bytes ...");
    }
    size_t elements = 1;
    for (int at = 0; at < count; at++) {
        parse(argv[at + 1], &cases[at]);
        elements = cases[at].elements > elements ? cases[at].elements : elements;
    }
    source = aligned_alloc(64, (elements * sizeof(float) + 63) / 64 * 64);
    target = aligned_alloc(64, ((size_t)ranks * elements * sizeof(float) + 63) / 64 * 64);
    if (source == NULL || target == NULL) {
        give_up("no memory", "vectors");
    }
    for (size_t at = 0; at < elements; at++) {
        source[at] = (float)(rank + 1);
    }
    memset(target, 0, (size_t)ranks * elements * sizeof(float));
    for (int at = 0; at < count; at++) {
        cases[at].calls = calibrate(&cases[at]);
    }
    time_blocks(cases, count);
    for (int at = 0; at < count; at++) {
        print(&cases[at]);
    }
    MPI_Op_free(&own_sum);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
