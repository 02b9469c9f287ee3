/*
 * Message rate and bandwidth of concurrent pairs, for bench/node/pairs.py: what osu_mbw_mr measures.
 *
 * Arguments: the number of pairs, and message lengths in bytes. Ranks 0 to pairs - 1 send, rank
 * pairs + i receives from rank i, the others wait. A sender posts a window of WINDOW sends and waits for
 * all of them and for an answer of 4 bytes. A block is as many windows as take about BLOCK_NS; blocks of
 * all lengths alternate, so that a slow moment of the machine affects every length alike. All pairs move
 * data at the same time; a block's time is that of the slowest sender. Rank 0 prints one line a length:
 *
 *     bytes windows median_ns least_ns
 *
 * in nanoseconds a window, in which pairs * WINDOW messages pass. Fails if a message arrives changed.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

enum { WINDOW = 64, BLOCKS = 21, BLOCK_NS = 2000000, WINDOWS_MAX = 20000, LENGTHS_MAX = 32, WATCHDOG_S = 120 };

typedef struct length_case {
    int bytes;
    int windows;
    double block_ns[BLOCKS];
} length_case;

static int rank;
static int pairs;
static char *buffer;

static void give_up(const char *problem, const char *what) {
    fprintf(stderr, "pairs: %s: %s\n", problem, what);
    PMPI_Abort(MPI_COMM_WORLD, 2);
}

static void send_window(int bytes) {
    MPI_Request requests[WINDOW];
    char answer[4];
    for (int at = 0; at < WINDOW; at++) {
        MPI_Isend(buffer, bytes, MPI_CHAR, rank + pairs, 0, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(answer, sizeof answer, MPI_CHAR, rank + pairs, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* All messages of a window go to the same buffer, as in osu_mbw_mr. */
static void receive_window(int bytes) {
    MPI_Request requests[WINDOW];
    const char answer[4] = {0};
    for (int at = 0; at < WINDOW; at++) {
        MPI_Irecv(buffer, bytes, MPI_CHAR, rank - pairs, 0, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    MPI_Send(answer, sizeof answer, MPI_CHAR, rank - pairs, 1, MPI_COMM_WORLD);
}

/* Nanoseconds a window, of the slowest sender. */
static double block_ns(int bytes, int windows) {
    double slowest = 0;
    PMPI_Barrier(MPI_COMM_WORLD);
    double started = now_ns();
    for (int at = 0; at < windows && rank < 2 * pairs; at++) {
        if (rank < pairs) {
            send_window(bytes);
        } else {
            receive_window(bytes);
        }
    }
    double elapsed = rank < pairs ? (now_ns() - started) / windows : 0;
    PMPI_Allreduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int calibrate(int bytes) {
    block_ns(bytes, 2);
    double first = block_ns(bytes, 5);
    double again = block_ns(bytes, 5);
    double windows = BLOCK_NS / (again < first ? again : first);
    return windows > WINDOWS_MAX ? WINDOWS_MAX : windows < 2 ? 2 : (int)windows;
}

static void check(int bytes) {
    for (int at = 0; at < bytes && rank >= pairs && rank < 2 * pairs; at++) {
        if (buffer[at] != (char)(rank - pairs + at)) {
            give_up("a message arrived changed", "buffer");
        }
    }
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Reads the arguments; how many lengths there are. */
static int parse(int argc, char **argv, length_case *cases, int ranks) {
    pairs = argc > 2 ? atoi(argv[1]) : 0;
    if (pairs < 1 || 2 * pairs > ranks || argc - 2 > LENGTHS_MAX) {
        give_up("needs the number of pairs, two ranks each, and 1 to 32 lengths", "arguments");
    }
    for (int at = 2; at < argc; at++) {
        char *end = NULL;
        long bytes = strtol(argv[at], &end, 10);
        if (*end != '\0' || bytes < 1 || bytes > 1 << 28) {
            give_up("not a length", argv[at]);
        }
        cases[at - 2].bytes = (int)bytes;
    }
    return argc - 2;
}

int main(int argc, char **argv) {
    static length_case cases[LENGTHS_MAX];
    int ranks = 0;
    int longest = 1;
    alarm(WATCHDOG_S);
    MPI_Init(&argc, &argv);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int count = parse(argc, argv, cases, ranks);
    for (int at = 0; at < count; at++) {
        longest = cases[at].bytes > longest ? cases[at].bytes : longest;
    }
    buffer = aligned_alloc(4096, ((size_t)longest + 4095) / 4096 * 4096);
    if (buffer == NULL) {
        give_up("no memory", "buffer");
    }
    for (int at = 0; at < longest; at++) {
        buffer[at] = rank < pairs ? (char)(rank + at) : 0;
    }
    for (int at = 0; at < count; at++) {
        cases[at].windows = calibrate(cases[at].bytes);
    }
    for (int block = 0; block < BLOCKS; block++) {
        for (int at = 0; at < count; at++) {
            cases[at].block_ns[block] = block_ns(cases[at].bytes, cases[at].windows);
        }
    }
    check(longest);
    for (int at = 0; at < count && rank == 0; at++) {
        qsort(cases[at].block_ns, BLOCKS, sizeof(double), compare);
        printf("%d %d %.1f %.1f\n", cases[at].bytes, cases[at].windows,
               cases[at].block_ns[BLOCKS / 2], cases[at].block_ns[0]);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
