/*
 * Collectives and messages that need each other: a blocking collective must progress the underlying MPI,
 * and a blocking receive must not keep a nonblocking collective from completing. If one does not progress
 * the other, the program hangs, and the watchdog names the case.
 */
#include <stdlib.h>

#include "check.h"

enum { LONG_MESSAGE = 1 << 20, VECTOR = 50000, ROUNDS = 20, TAG = 9, LATER_TAG = 10 };

static int left_neighbour(void) { return (world.rank + world.ranks - 1) % world.ranks; }
static int right_neighbour(void) { return (world.rank + 1) % world.ranks; }

/*
 * Rank r > 0 starts its operation, waits for it, and sends a message to the next rank. Rank 0 starts its
 * own, and receives the last rank's message before it waits.
 */
static void receive_depends_on_collective(int round) {
    MPI_Request request;
    int one = 1;
    int sum = 0;
    int word = -1;
    check_case("receive that depends on an Iallreduce, round %d", round);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (world.rank == 0 && world.ranks > 1) {
        MPI_Recv(&word, 1, MPI_INT, world.ranks - 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_equal(world.ranks, word, "the last rank's sum");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(world.ranks, sum, "sum");
    if (world.rank == world.ranks - 1 && world.ranks > 1) {
        MPI_Send(&sum, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
}

/* The same with a vector that is longer than one message of any transport. */
static void receive_depends_on_long_collective(int round) {
    static long mine[VECTOR];
    static long sum[VECTOR];
    MPI_Request request;
    int word = round;
    check_case("receive that depends on a long Iallreduce, round %d", round);
    for (int at = 0; at < VECTOR; at++) {
        mine[at] = world.rank + at;
    }
    MPI_Iallreduce(mine, sum, VECTOR, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
    if (world.rank == 0) {
        for (int sender = 1; sender < world.ranks; sender++) {
            MPI_Recv(&word, 1, MPI_INT, sender, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_equal(round, word, "a rank's word");
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    long base = (long)world.ranks * (world.ranks - 1) / 2;
    for (int at = 0; at < VECTOR; at += 997) {
        check_equal(base + (long)at * world.ranks, sum[at], "sum");
    }
}

static void collective(int which) {
    int one = 1;
    int sum = 0;
    if (which == 0) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        check_equal(world.ranks, sum, "sum");
    } else if (which == 1) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (which == 2) {
        sum = world.rank == 0 ? 17 : 0;
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
        check_equal(17, sum, "broadcast value");
    } else {
        MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        check_equal(world.rank == 0 ? world.ranks : 0, sum, "sum at the root");
    }
}

/*
 * A long message to rank 0 that needs its receiver's help (rendezvous). The sender enters the
 * collective only after its send is done; the receiver is inside the collective all that time.
 */
static void rendezvous_under_collective(int which, int *buffer, const char *also) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_case("long message to a rank inside a blocking collective, kind %d%s", which, also);
    if (world.ranks == 1) {
        return;
    }
    if (world.rank == 0) {
        buffer[LONG_MESSAGE - 1] = -1;
        MPI_Irecv(buffer, LONG_MESSAGE, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
    } else if (world.rank == 1) {
        check_sleep_us(20000); /* rank 0 is in the collective by now */
        buffer[LONG_MESSAGE - 1] = 5 + which;
        MPI_Send(buffer, LONG_MESSAGE, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    collective(which);
    if (world.rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_equal(5 + which, buffer[LONG_MESSAGE - 1], "last element");
    }
}

/*
 * The same while each rank has an unexpected message that it receives only later: a probe that finds it
 * ends before it has progressed the long one.
 */
static void rendezvous_beside_unexpected(int which, int *buffer) {
    MPI_Request request;
    int early = which;
    int word = -1;
    check_case("unexpected messages before a collective of kind %d", which);
    MPI_Isend(&early, 1, MPI_INT, right_neighbour(), LATER_TAG, MPI_COMM_WORLD, &request);
    MPI_Probe(left_neighbour(), LATER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    rendezvous_under_collective(which, buffer, ", a message unexpected");
    MPI_Recv(&word, 1, MPI_INT, left_neighbour(), LATER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(which, word, "the message received later");
}

/* Everybody's blocking send of a long message ends before it enters the collective. */
static void blocking_ring(int which, int *outgoing, int *incoming) {
    MPI_Request request;
    check_case("blocking ring of long messages before a collective of kind %d", which);
    outgoing[0] = 100 * which + world.rank;
    incoming[0] = -1;
    MPI_Irecv(incoming, LONG_MESSAGE, MPI_INT, left_neighbour(), TAG, MPI_COMM_WORLD, &request);
    MPI_Send(outgoing, LONG_MESSAGE, MPI_INT, right_neighbour(), TAG, MPI_COMM_WORLD);
    collective(which);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(100 * which + left_neighbour(), incoming[0], "from the left");
}

/* Every rank exchanges long messages around a ring while collectives are outstanding. */
static void ring_with_collective(int round, int *outgoing, int *incoming) {
    MPI_Request requests[3];
    double mine = world.rank + 0.5;
    double sum = 0;
    check_case("ring of long messages with an Iallreduce, round %d", round);
    outgoing[0] = world.rank;
    incoming[0] = -1;
    MPI_Irecv(incoming, LONG_MESSAGE, MPI_INT, left_neighbour(), TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(outgoing, LONG_MESSAGE, MPI_INT, right_neighbour(), TAG, MPI_COMM_WORLD,
              &requests[2]);
    if (round % 2 == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    check_equal(left_neighbour(), incoming[0], "from the left");
    check_that(sum == 0.5 * world.ranks * world.ranks, "sum: expected %g, got %g",
               0.5 * world.ranks * world.ranks, sum);
}

/* MPI_Probe and MPI_Iprobe loops, which block as a receive does. */
static void probe_loop(void) {
    MPI_Request request;
    int flag = 0;
    int mine = world.rank;
    int max = -1;
    int word = 0;
    check_case("MPI_Iprobe loop with an Iallreduce outstanding");
    MPI_Iallreduce(&mine, &max, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    if (world.rank != 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(&max, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        return;
    }
    for (int sender = 1; sender < world.ranks; sender++, flag = 0) {
        while (!flag) {
            MPI_Iprobe(sender, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
        MPI_Recv(&word, 1, MPI_INT, sender, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_equal(world.ranks - 1, word, "a rank's maximum");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    check_start(argc, argv, "progress", MPI_THREAD_SINGLE);
    int *outgoing = check_memory(LONG_MESSAGE * sizeof(int));
    int *incoming = check_memory(LONG_MESSAGE * sizeof(int));
    for (int round = 0; round < ROUNDS; round++) {
        receive_depends_on_collective(round);
        receive_depends_on_long_collective(round);
    }
    for (int which = 0; which < 4; which++) {
        rendezvous_under_collective(which, outgoing, "");
        rendezvous_beside_unexpected(which, outgoing);
        blocking_ring(which, outgoing, incoming);
    }
    for (int round = 0; round < 6; round++) {
        ring_with_collective(round, outgoing, incoming);
    }
    probe_loop();
    free(outgoing);
    free(incoming);
    return check_finish();
}
