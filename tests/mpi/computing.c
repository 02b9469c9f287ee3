/*
 * One rank computes, far from any call, while the others need it.
 *
 *     computing [--sample 1] FILE SECONDS
 *
 * Ranks tell each other in FILE, which all of them map, how far they are. In each round one rank completes an allreduce, or
 * begins a nonblocking one, and computes until all others have completed it: what it sent them may be lost, so somebody has
 * to send it again. At the end it computes for SECONDS while the others wait for it, and say little meanwhile.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 60, RANKS_MAX = 64, PATIENCE_S = 60, SENT_MAX = 400 };

typedef struct {
    _Atomic int completed[RANKS_MAX]; /* rounds, of each rank */
} progress;

static progress *map_progress(const char *name) {
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(progress)) != 0) {
        perror(name);
        exit(2);
    }
    void *at = mmap(NULL, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror(name);
        exit(2);
    }
    close(file);
    return at;
}

static bool have_all_completed(progress *shared, int rounds) {
    for (int rank = 0; rank < world.ranks; rank++) {
        if (rank != world.rank && atomic_load(&shared->completed[rank]) < rounds) {
            return false;
        }
    }
    return true;
}

/* Computes, and calls nothing, until the others have completed so many rounds. */
static void compute_until_completed(progress *shared, int rounds) {
    int64_t end = check_now_ns() + PATIENCE_S * 1000000000LL;
    while (!have_all_completed(shared, rounds) && check_now_ns() < end) {
        check_sleep_us(50); /* hosts of a lab share the cores */
    }
    check_that(have_all_completed(shared, rounds), "the others wait for a rank that computes");
}

/* How many datagrams and segments of TCP this host has sent: the fields of a protocol's lines, its names and its numbers. */
static long count_sent(const char *protocol, const char *field) {
    char names[1024];
    char numbers[1024];
    char *names_left;
    char *numbers_left;
    long found = -1;
    FILE *file = fopen("/proc/self/net/snmp", "r");
    size_t length = strlen(protocol);
    while (file != NULL && found < 0 && fgets(names, sizeof names, file) && fgets(numbers, sizeof numbers, file)) {
        if (strncmp(names, protocol, length) != 0 || names[length] != ':') {
            continue;
        }
        const char *name = strtok_r(names, " \n", &names_left);
        const char *number = strtok_r(numbers, " \n", &numbers_left);
        while (name != NULL && number != NULL && strcmp(name, field) != 0) {
            name = strtok_r(NULL, " \n", &names_left);
            number = strtok_r(NULL, " \n", &numbers_left);
        }
        found = number != NULL ? atol(number) : -1;
    }
    if (file != NULL) {
        fclose(file);
    }
    check_that(found >= 0, "/proc/self/net/snmp has no %s %s", protocol, field);
    return found;
}

static void check_sum(long sum, int round) {
    long expected = world.ranks * (world.ranks - 1L) / 2 + (long)world.ranks * round;
    check_equal(expected, sum, "sum");
}

static void run_round(progress *shared, int round) {
    bool computes = round / 2 % world.ranks == world.rank;
    bool blocks = round % 2 == 0;
    long mine = world.rank + round;
    long sum = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check_case("round %d, %s", round, blocks ? "blocking" : "nonblocking");
    if (blocks) {
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    } else {
        MPI_Iallreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    if (computes) {
        compute_until_completed(shared, round + 1);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sum(sum, round);
    atomic_store(&shared->completed[world.rank], round + 1);
}

/* The others wait for the last rank, which computes for seconds; each says how much it sent meanwhile. */
static void wait_for_the_last(int seconds) {
    long mine = world.rank + ROUNDS;
    long sum = 0;
    check_case("a rank computes for %d s", seconds);
    PMPI_Barrier(MPI_COMM_WORLD);
    if (world.rank == world.ranks - 1) {
        check_sleep_us(seconds * 1000000L);
    }
    long sent = count_sent("Udp", "OutDatagrams") + count_sent("Tcp", "OutSegs");
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    sent = count_sent("Udp", "OutDatagrams") + count_sent("Tcp", "OutSegs") - sent;
    check_sum(sum, ROUNDS);
    check_that(sent < SENT_MAX, "%ld datagrams and segments were sent while one rank computed", sent);
    long most = 0;
    PMPI_Reduce(&sent, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (world.rank == 0) {
        printf("computing: at most %ld datagrams and segments of a host while one computed for %d s\n", most, seconds);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "computing FILE SECONDS\n");
        return 2;
    }
    progress *shared = map_progress(argv[argc - 2]);
    int seconds = atoi(argv[argc - 1]);
    check_start(argc - 2, argv, "computing", MPI_THREAD_SINGLE);
    check_that(world.ranks <= RANKS_MAX, "at most %d ranks", RANKS_MAX);
    for (int round = 0; round < ROUNDS; round++) {
        run_round(shared, round);
    }
    wait_for_the_last(seconds);
    return check_finish();
}
