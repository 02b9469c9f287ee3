#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CASE_BYTES = 256, LINE_BYTES = 512, FAILURES_PRINTED_MAX = 10 };
enum { WATCHDOG_SECONDS = 120, EXIT_WATCHDOG = 3 };

check_world world = {.seed = 1, .sample = 16};

static const char *program_name = "?";
static _Thread_local char current_case[CASE_BYTES] = "start";
static const char *main_case; /* the first thread's current_case */
static atomic_llong checks;
static atomic_llong failures;

/* Appends `text`; a signal handler may call it. */
static size_t append(char *line, size_t used, const char *text) {
    while (*text != '\0' && used < LINE_BYTES - 1) {
        line[used++] = *text++;
    }
    return used;
}

/* One write(), so that the lines of several ranks don't mix. */
static void on_alarm(int number) {
    (void)number;
    char digits[16] = "";
    char line[LINE_BYTES];
    size_t used = 0;
    int at = sizeof digits - 1;
    int value = world.rank;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0 && at > 0);
    const char *parts[] = {"FAIL ",       program_name,   " rank ",
                           &digits[at],   ": watchdog: stuck in case [", main_case, "]\n"};
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        used = append(line, used, parts[part]);
    }
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* nothing can be done about a failure */
    _exit(EXIT_WATCHDOG);
}

static uint64_t parse_number(const char *name, const char *text) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = text == NULL ? 0 : strtoull(text, &end, 10);
    if (text == NULL || errno != 0 || end == text || *end != '\0') {
        fprintf(stderr, "%s: %s needs a number\n", program_name, name);
        exit(2);
    }
    return value;
}

static unsigned parse_options(int argc, char **argv) {
    unsigned watchdog_seconds = WATCHDOG_SECONDS;
    for (int at = 1; at < argc; at += 2) {
        uint64_t value = parse_number(argv[at], argv[at + 1]);
        if (strcmp(argv[at], "--seed") == 0) {
            world.seed = value;
        } else if (strcmp(argv[at], "--sample") == 0 && value > 0) {
            world.sample = value;
        } else if (strcmp(argv[at], "--watchdog") == 0) {
            watchdog_seconds = (unsigned)value;
        } else {
            fprintf(stderr, "%s: %s: allowed are --seed N, --sample N (from 1), --watchdog S\n",
                    program_name, argv[at]);
            exit(2);
        }
    }
    return watchdog_seconds;
}

void check_start_without_mpi(int argc, char **argv, const char *program) {
    program_name = program;
    main_case = current_case;
    unsigned watchdog_seconds = parse_options(argc, argv);
    signal(SIGALRM, on_alarm);
    alarm(watchdog_seconds);
}

void check_start(int argc, char **argv, const char *program, int threads) {
    check_start_without_mpi(argc, argv, program);
    int provided = MPI_THREAD_SINGLE;
    if (threads == MPI_THREAD_SINGLE) {
        MPI_Init(&argc, &argv);
    } else {
        MPI_Init_thread(&argc, &argv, threads, &provided);
    }
    PMPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    check_that(provided >= threads, "MPI_Init_thread: wanted level %d, provided %d", threads,
               provided);
}

void check_case(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(current_case, sizeof current_case, format, arguments);
    va_end(arguments);
}

bool check_that(bool holds, const char *format, ...) {
    atomic_fetch_add_explicit(&checks, 1, memory_order_relaxed);
    if (holds) {
        return true;
    }
    long long number = atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed);
    if (number < FAILURES_PRINTED_MAX) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        fprintf(stderr, "FAIL %s rank %d of %d seed %llu: [%s] %s\n", program_name, world.rank,
                world.ranks, (unsigned long long)world.seed, current_case, text);
    }
    return false;
}

bool check_equal(long long expected, long long got, const char *what) {
    return check_that(expected == got, "%s: expected %lld, got %lld", what, expected, got);
}

void check_filled(const unsigned char *at, size_t bytes, const char *what) {
    size_t index = 0;
    while (index < bytes && at[index] == CHECK_FILL) {
        index++;
    }
    check_that(index == bytes, "%s: byte %zu of %zu was overwritten with 0x%02x", what, index,
               bytes, index < bytes ? at[index] : 0U);
}

int check_sum_up_on(MPI_Comm comm) {
    check_case("summing up");
    long long mine[2] = {atomic_load(&checks), atomic_load(&failures)};
    long long all[2] = {0, 0};
    PMPI_Allreduce(mine, all, 2, MPI_LONG_LONG, MPI_SUM, comm);
    if (world.rank == 0) {
        printf("%s: %lld checks on %d ranks, %lld failed, seed %llu\n", program_name, all[0],
               world.ranks, all[1], (unsigned long long)world.seed);
        fflush(stdout);
    }
    return all[1] == 0 ? 0 : 1;
}

int check_sum_up(void) { return check_sum_up_on(MPI_COMM_WORLD); }

int check_finish(void) {
    int exit_code = check_sum_up();
    check_case("MPI_Finalize");
    MPI_Finalize();
    return exit_code;
}

static uint64_t mix(uint64_t value) { /* the finaliser of SplitMix64 */
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

uint64_t check_hash(uint64_t first, uint64_t second, uint64_t third) {
    uint64_t value = mix(world.seed + 0x9e3779b97f4a7c15U);
    value = mix(value ^ (first + 0x9e3779b97f4a7c15U));
    value = mix(value ^ (second + 0x9e3779b97f4a7c15U));
    return mix(value ^ (third + 0x9e3779b97f4a7c15U));
}

void *check_memory(size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "FAIL %s rank %d: no memory for %zu bytes\n", program_name, world.rank,
                bytes);
        _exit(1);
    }
    return memory;
}

void check_sleep_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

int64_t check_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
