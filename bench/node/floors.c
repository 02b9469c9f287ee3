/*
 * The least times of this machine, for bench/node/node.py, as one JSON object:
 *
 *   cores              cores this process may run on
 *   line_ns            a cache line, in one direction between two cores: half a round trip of one
 *                      line that both sides write alternately
 *   two_line_hop_ns    half a round trip where each side writes a line of its own and polls the
 *                      other's: twice as much, because each hop first takes the line away from the
 *                      poller and then brings it back
 *   exchange_ns        an exchange over two lines that swap roles every round
 *   copy_bytes_per_ns  memcpy of 16 MiB on one core while the other does the same
 *   switch_ns          a context switch between two processes on one core, by sched_yield
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { ROUNDS = 2000, BATCHES = 101, COPY_BYTES = 16 << 20, COPIES = 3, WATCHDOG_S = 60 };

typedef struct line {
    _Alignas(128) _Atomic uint64_t word;
} line;

static struct {
    line lines[2];
    double result;
} *shared;

static void await(const line *at, uint64_t value) {
    while (atomic_load_explicit(&at->word, memory_order_acquire) != value) {
    }
}

static void put(line *at, uint64_t value) {
    atomic_store_explicit(&at->word, value, memory_order_release);
}

/* Rank 0 makes the word odd, rank 1 even. */
static void bounce(int rank, uint64_t round) {
    await(&shared->lines[0], 2 * round + (uint64_t)rank);
    put(&shared->lines[0], 2 * round + (uint64_t)rank + 1);
}

static void bounce_two(int rank, uint64_t round) {
    if (rank == 0) {
        put(&shared->lines[0], round + 1);
    }
    await(&shared->lines[1 - rank], round + 1);
    if (rank == 1) {
        put(&shared->lines[1], round + 1);
    }
}

static void exchange(int rank, uint64_t round) {
    unsigned mine = ((unsigned)rank + (unsigned)round) & 1;
    put(&shared->lines[mine], round + 1);
    await(&shared->lines[1 - mine], round + 1);
}

static void copy(int rank, uint64_t round) {
    static char *source;
    static char *target;
    (void)rank, (void)round;
    if (source == NULL) {
        source = malloc(COPY_BYTES);
        target = malloc(COPY_BYTES);
        if (source == NULL || target == NULL) {
            _exit(1);
        }
        memset(source, 1, COPY_BYTES);
    }
    memcpy(target, source, COPY_BYTES);
    __asm__ volatile("" : : "r"(target) : "memory");
}

static void yield(int rank, uint64_t round) {
    (void)rank, (void)round;
    sched_yield();
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void pin(int core) {
    cpu_set_t granted;
    cpu_set_t one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof granted, &granted);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &granted) && core-- == 0) {
            CPU_SET(cpu, &one);
        }
    }
    sched_setaffinity(0, sizeof one, &one);
}

static void time_rank(int rank, int core, int rounds, void (*body)(int, uint64_t)) {
    static double batches[BATCHES];
    uint64_t round = 0;
    alarm(WATCHDOG_S);
    pin(core);
    int count = rounds < ROUNDS ? 11 : BATCHES;
    for (int batch = -1; batch < count; batch++) {
        double started = now_ns();
        for (int at = 0; at < rounds; at++) {
            body(rank, round++);
        }
        if (batch >= 0) {
            batches[batch] = (now_ns() - started) / rounds;
        }
    }
    qsort(batches, (size_t)count, sizeof(double), compare);
    if (rank == 0) {
        shared->result = batches[count / 2];
    }
}

/* Median nanoseconds a round, of two processes on the given cores. */
static double time_pair(int first_core, int second_core, int rounds,
                        void (*body)(int, uint64_t)) {
    memset(shared, 0, sizeof *shared);
    pid_t children[2];
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            time_rank(rank, rank == 0 ? first_core : second_core, rounds, body);
            _exit(0);
        }
    }
    for (int rank = 0; rank < 2; rank++) {
        int status = 0;
        if (children[rank] < 0 || waitpid(children[rank], &status, 0) < 0 || status != 0) {
            fprintf(stderr, "floors: a process failed\n");
            exit(1);
        }
    }
    return shared->result;
}

int main(void) {
    cpu_set_t granted;
    sched_getaffinity(0, sizeof granted, &granted);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("floors: mmap");
        return 1;
    }
    if (CPU_COUNT(&granted) < 2) {
        fprintf(stderr, "floors: needs two cores\n");
        return 1;
    }
    printf("{\"cores\": %d", CPU_COUNT(&granted));
    printf(", \"line_ns\": %.1f", time_pair(0, 1, ROUNDS, bounce) / 2);
    printf(", \"two_line_hop_ns\": %.1f", time_pair(0, 1, ROUNDS, bounce_two) / 2);
    printf(", \"exchange_ns\": %.1f", time_pair(0, 1, ROUNDS, exchange));
    printf(", \"copy_bytes_per_ns\": %.2f", COPY_BYTES / time_pair(0, 1, COPIES, copy));
    printf(", \"switch_ns\": %.1f}\n", time_pair(0, 0, ROUNDS, yield) / 2);
    return 0;
}
