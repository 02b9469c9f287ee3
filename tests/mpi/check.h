/*
 * Shared by every test program: start and end, the name of the current case, failures that name the rank,
 * a watchdog, and reproducible "random" numbers.
 *
 * All of it calls the PMPI_ functions of plain.h, so that the checks never go through the code under test.
 */
#ifndef CHECK_H
#define CHECK_H

#include "plain.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int rank; /* in MPI_COMM_WORLD */
    int ranks;
    uint64_t seed;
    uint64_t sample; /* run every sample-th case of a product that is too large; 1 runs all */
} check_world;

extern check_world world;

/*
 * Initialises MPI for `threads` (MPI_THREAD_SINGLE ...), reads --seed, --sample and --watchdog,
 * and starts the watchdog, which ends a process that hangs and names its case.
 */
void check_start(int argc, char **argv, const char *program, int threads);

/* The same without initialising MPI: the program sets the ranks of `world` itself. */
void check_start_without_mpi(int argc, char **argv, const char *program);

/* Names the case that the next checks belong to; per thread. */
void check_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Counts one check; if `holds` is false, prints the message. */
bool check_that(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* check_that() for two numbers. */
bool check_equal(long long expected, long long got, const char *what);

/* The byte that fills memory to which nobody may write. */
enum { CHECK_FILL = 0xA5 };

/* Checks that memory still holds that byte; `what` names the memory. */
void check_filled(const unsigned char *at, size_t bytes, const char *what);

/* Sums up over all ranks, prints one line, finalises MPI. Returns the program's exit code. */
int check_finish(void);

/* The same sum without MPI_Finalize. Returns the exit code on every rank. */
int check_sum_up(void);

/* The same over the ranks of `comm`, which has world rank 0 as its own. */
int check_sum_up_on(MPI_Comm comm);

/* A number that depends on the seed and the three arguments only. */
uint64_t check_hash(uint64_t first, uint64_t second, uint64_t third);

/* Allocates memory, or ends the test. */
void *check_memory(size_t bytes);

/* Sleeps. */
void check_sleep_us(long us);

/* Nanoseconds on a clock that all processes of this machine share. */
int64_t check_now_ns(void);

#endif
