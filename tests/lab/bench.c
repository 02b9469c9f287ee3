/*
 * Latency of collectives, one line of JSON a case, for bench.py.
 *
 * A case is OPERATION:BYTES, such as allreduce:8; bytes are those that a rank contributes, as in the OSU
 * benchmarks. With :apart behind it a barrier precedes each call, and is not counted, as in IMB. A reduce_scatter deals its vector to the ranks in blocks that differ by one element at most
 * (osu_reduce_scatter). A case is timed in blocks of calls that take about BLOCK_US
 * together, or BENCH_BLOCK_US of the environment. A block's latency is its time on the slowest rank over its calls; the median over blocks is
 * printed. Barriers are the method's own: the library takes PMPI_ calls, too. The median and the 99th percentile of single calls on rank 0
 * are printed too: if a few calls take long, a block's latency is a mean, and the median of calls is the
 * typical time.
 *
 * In a reduction to one rank the others run ahead, and in a broadcast the root, so calls in a row would measure a
 * rate instead of a latency. As in OSU's osu_reduce a barrier precedes each call, and is not counted.
 *
 * The operation overlap is OSU's osu_iallreduce: how much of a nonblocking allreduce's time a rank
 * can compute in, as 100 - 100 (with computing - computing alone) / without, at least 0.
 *
 * BENCH_STEP=5 puts rank r of the world at place 5 r, modulo the ranks. BENCH_HOSTS_PER_LEAF=4 names the leaf of a lab's host.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 15, WARM_CALLS = 30, CALLS_MAX = 5000, BLOCK_US = 25000, OVERLAP_CALLS = 200 };

/* Calls before the warm-up, in which connections are made. */
enum { FIRST_CALLS = 3 };

struct one_case {
    char operation[16];
    int elements; /* floats */
    bool is_apart;
};

static MPI_Comm all;
static int rank, ranks;
static float *mine, *result;
static int *blocks_of; /* elements that each rank gets of a reduce_scatter */
static double call_us[BLOCKS * CALLS_MAX]; /* rank 0's timed calls */
static int counted;
static int calls_made; /* of a case, in all */

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void fail(const char *what, const char *detail);

/* How long a block is to take. In a single call behind a barrier ranks wait for those that left the barrier last. */
static double wanted_us(void) {
    const char *text = getenv("BENCH_BLOCK_US");
    int us = text ? atoi(text) : BLOCK_US;
    if (us <= 0) {
        fail("not a number of microseconds in BENCH_BLOCK_US", text);
    }
    return us;
}

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "bench: %s: %s\n", what, detail);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static struct one_case parse_case(const char *text) {
    struct one_case parsed = {.elements = 0};
    char pattern[8] = "";
    int bytes = 0;
    if (sscanf(text, "%15[a-z_]:%d:%7[a-z]", parsed.operation, &bytes, pattern) < 1 ||
        (*pattern && strcmp(pattern, "apart") != 0)) {
        fail("not a case (operation:bytes, operation:bytes:apart)", text);
    }
    parsed.is_apart = *pattern != 0;
    parsed.elements = bytes / (int)sizeof(float);
    return parsed;
}

static void call(const struct one_case *one) {
    calls_made++;
    if (strcmp(one->operation, "barrier") == 0) {
        MPI_Barrier(all);
    } else if (strcmp(one->operation, "reduce") == 0) {
        MPI_Reduce(mine, result, one->elements, MPI_FLOAT, MPI_SUM, 0, all);
    } else if (strcmp(one->operation, "allreduce") == 0) {
        MPI_Allreduce(mine, result, one->elements, MPI_FLOAT, MPI_SUM, all);
    } else if (strcmp(one->operation, "bcast") == 0) {
        MPI_Bcast(rank == 0 ? mine : result, one->elements, MPI_FLOAT, 0, all);
    } else if (strcmp(one->operation, "allgather") == 0) {
        MPI_Allgather(mine, one->elements, MPI_FLOAT, result, one->elements, MPI_FLOAT,
                      all);
    } else if (strcmp(one->operation, "reduce_scatter") == 0) {
        MPI_Reduce_scatter(mine, result, blocks_of, MPI_FLOAT, MPI_SUM, all);
    } else if (strcmp(one->operation, "scan") == 0) {
        MPI_Scan(mine, result, one->elements, MPI_FLOAT, MPI_SUM, all);
    } else if (strcmp(one->operation, "exscan") == 0) {
        MPI_Exscan(mine, result, one->elements, MPI_FLOAT, MPI_SUM, all);
    } else {
        fail("no such operation", one->operation);
    }
}

static void deal(int elements) {
    for (int other = 0; other < ranks; other++) {
        blocks_of[other] = elements / ranks + (other < elements % ranks);
    }
}

/* Every element: rank + 1 and a little for its place, all of it exact in a float. */
static float element(int of_rank, int at) {
    return (float)(of_rank + 1 + at % 16);
}

static bool is(const struct one_case *one, const char *operation) {
    return strcmp(one->operation, operation) == 0;
}

/* Element `at` of the reduction of the first ranks. */
static float reduced(int of_ranks, int at) {
    float sum = 0;
    for (int other = 0; other < of_ranks; other++) {
        sum += element(other, at);
    }
    return sum;
}

/* Compares `elements` results, which are those from element `first` on over the first ranks. */
static void check_reduced(const struct one_case *one, int elements, int first, int of_ranks) {
    for (int at = 0; at < elements; at++) {
        if (result[at] != reduced(of_ranks, first + at)) {
            fail("wrong result", one->operation);
        }
    }
}

static void check_gathered(const struct one_case *one) {
    for (int other = 0; other < ranks; other++) {
        for (int at = 0; at < one->elements; at++) {
            if (result[(size_t)other * (size_t)one->elements + (size_t)at] != element(other, at)) {
                fail("wrong result", one->operation);
            }
        }
    }
}

static void check_sent(const struct one_case *one) {
    for (int at = 0; rank > 0 && at < one->elements; at++) {
        if (result[at] != element(0, at)) {
            fail("wrong result", one->operation);
        }
    }
}

static void check_result(const struct one_case *one) {
    if (is(one, "bcast")) {
        check_sent(one);
    } else if (is(one, "allgather")) {
        check_gathered(one);
    } else if (is(one, "reduce_scatter")) {
        int first = 0;
        for (int other = 0; other < rank; other++) {
            first += blocks_of[other];
        }
        check_reduced(one, blocks_of[rank], first, ranks);
    } else if (is(one, "scan")) {
        check_reduced(one, one->elements, 0, rank + 1);
    } else if (is(one, "exscan")) {
        check_reduced(one, rank > 0 ? one->elements : 0, 0, rank);
    } else if (rank == 0 || !is(one, "reduce")) {
        check_reduced(one, one->elements, 0, ranks);
    }
}

static void note_call(double us) {
    if (counted < BLOCKS * CALLS_MAX) {
        call_us[counted++] = us;
    }
}

static double one_by_one_us(const struct one_case *one, int calls) {
    double total = 0;
    for (int at = 0; at < calls; at++) {
        PMPI_Barrier(all);
        double started = now_us();
        call(one);
        double took = now_us() - started;
        note_call(took);
        total += took;
    }
    return total / calls;
}

/*
 * The first call is not counted. It absorbs the skew of the barrier: if the barrier's own packets are
 * lost, the underlying MPI sends again after 200 ms.
 */
static double in_a_row_us(const struct one_case *one, int calls) {
    PMPI_Barrier(all);
    call(one);
    double started = now_us();
    double last = started;
    for (int at = 0; at < calls; at++) {
        call(one);
        double ended = now_us();
        note_call(ended - last);
        last = ended;
    }
    return (last - started) / calls;
}

/* Microseconds a call, on the slowest rank. */
static double block_us(const struct one_case *one, int calls) {
    double slowest = 0;
    /* Ranks run ahead there, too: of a scan, the first need nothing of the last. */
    bool is_one_way = is(one, "reduce") || is(one, "bcast") || is(one, "scan") || is(one, "exscan");
    double each = is_one_way || one->is_apart ? one_by_one_us(one, calls) : in_a_row_us(one, calls);
    PMPI_Allreduce(&each, &slowest, 1, MPI_DOUBLE, MPI_MAX, all);
    return slowest;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void run_case(const struct one_case *one) {
    double blocks[BLOCKS];
    size_t results = (size_t)one->elements * (is(one, "allgather") ? (size_t)ranks : 1);
    memset(result, 0, results * sizeof(float));
    deal(one->elements);
    int warm_calls = one->elements > 65536 ? 5 : WARM_CALLS;
    calls_made = 0;
    block_us(one, FIRST_CALLS);
    double warm = block_us(one, warm_calls);
    int calls = (int)(wanted_us() / warm) + 1;
    calls = calls > CALLS_MAX ? CALLS_MAX : calls;
    counted = 0;
    for (int block = 0; block < BLOCKS; block++) {
        blocks[block] = block_us(one, calls);
    }
    check_result(one);
    qsort(blocks, BLOCKS, sizeof *blocks, compare_doubles);
    qsort(call_us, (size_t)counted, sizeof *call_us, compare_doubles);
    if (rank == 0) {
        printf("{\"operation\": \"%s\", \"bytes\": %d, \"is_apart\": %s, \"calls\": %d, \"calls_in_all\": %d, "
               "\"median_us\": %.2f, \"best_us\": %.2f, \"worst_us\": %.2f, "
               "\"call_median_us\": %.2f, \"p99_us\": %.2f}\n",
               one->operation, one->elements * (int)sizeof(float),
               one->is_apart ? "true" : "false", calls, calls_made, blocks[BLOCKS / 2], blocks[0],
               blocks[BLOCKS - 1], call_us[counted / 2], call_us[counted * 99 / 100]);
        fflush(stdout);
    }
}

/* Microseconds of a nonblocking allreduce behind whose start this rank computes for so long. */
static double started_and_awaited_us(const struct one_case *one, double compute_us) {
    MPI_Request request;
    double started = now_us();
    MPI_Iallreduce(mine, result, one->elements, MPI_FLOAT, MPI_SUM, all, &request);
    for (double until = now_us() + compute_us; now_us() < until;) {
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return now_us() - started;
}

/* The mean over calls and ranks, as osu_iallreduce has it. */
static double mean_us(const struct one_case *one, int calls, double compute_us) {
    double total = 0;
    double sum = 0;
    PMPI_Barrier(all);
    for (int at = 0; at < calls; at++) {
        total += started_and_awaited_us(one, compute_us);
        PMPI_Barrier(all);
    }
    PMPI_Allreduce(&total, &sum, 1, MPI_DOUBLE, MPI_SUM, all);
    return sum / ranks / calls;
}

static void run_overlap(const struct one_case *one) {
    mean_us(one, 10, 0);
    double alone = mean_us(one, OVERLAP_CALLS, 0);
    double both = mean_us(one, OVERLAP_CALLS, alone);
    double overlap = 100 - 100 * (both - alone) / alone;
    check_result(one);
    if (rank == 0) {
        printf("{\"operation\": \"overlap\", \"bytes\": %d, \"median_us\": %.2f, "
               "\"with_computing_us\": %.2f, \"overlap_percent\": %.1f}\n",
               one->elements * (int)sizeof(float), alone, both, overlap < 0 ? 0 : overlap);
        fflush(stdout);
    }
}

/* What a variable of the environment says; 0 if it is not set. */
static int number_of(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* Tells the library which leaf of a lab this host is at: its name is h and its number. */
static void name_leaf(int hosts_per_leaf) {
    char host[64] = "";
    char leaf[16];
    int number = 0;
    if (gethostname(host, sizeof host - 1) != 0 || sscanf(host, "h%d", &number) != 1) {
        fail("not a host of a lab", host);
    }
    snprintf(leaf, sizeof leaf, "%d", number / hosts_per_leaf);
    setenv("TRIBUTARY_LEAF", leaf, 1);
}

int main(int argc, char **argv) {
    int hosts_per_leaf = number_of("BENCH_HOSTS_PER_LEAF");
    int step = number_of("BENCH_STEP");
    if (hosts_per_leaf > 0) {
        name_leaf(hosts_per_leaf);
    }
    MPI_Init(&argc, &argv);
    all = MPI_COMM_WORLD;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    if (step > 0) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank * step % ranks, &all);
        MPI_Comm_rank(all, &rank);
    }
    blocks_of = calloc((size_t)ranks, sizeof *blocks_of);
    int most = 1;
    int most_results = 1;
    for (int at = 1; at < argc; at++) {
        struct one_case one = parse_case(argv[at]);
        int results = is(&one, "allgather") ? one.elements * ranks : one.elements;
        most = one.elements > most ? one.elements : most;
        most_results = results > most_results ? results : most_results;
    }
    mine = malloc((size_t)most * sizeof(float));
    result = malloc((size_t)most_results * sizeof(float));
    for (int at = 0; at < most; at++) {
        mine[at] = element(rank, at);
    }
    for (int at = 1; at < argc; at++) {
        struct one_case one = parse_case(argv[at]);
        if (strcmp(one.operation, "overlap") == 0) {
            run_overlap(&one);
        } else {
            run_case(&one);
        }
    }
    free(mine);
    free(result);
    free(blocks_of);
    if (all != MPI_COMM_WORLD) {
        MPI_Comm_free(&all);
    }
    MPI_Finalize();
    return 0;
}
