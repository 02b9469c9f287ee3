/*
 * Programs that only end if everything makes progress while something else is waited for.
 *
 * MPI 4.1 §2.9: a started collective completes while its process sits in another MPI call; and a
 * process that waits in a collective still moves messages that were started before.
 */
#include "check.h"

#include <string.h>

/* Large enough that every MPI needs the receiver's help to send it. */
enum { LARGE = 3 * 1000 * 1000, VECTOR = 50 * 1000, ROUNDS = 5, TAG = 3 };

static char *outgoing;
static char *incoming;

/* Rank 0 starts an allreduce and then waits for messages that the others send only after theirs. */
static void receive_during_allreduce(int round) {
    check_case("receive during an allreduce, round %d", round);
    static long mine[VECTOR];
    static long sums[VECTOR];
    for (int i = 0; i < VECTOR; i++) {
        mine[i] = world.rank + i;
    }
    MPI_Request request;
    MPI_Iallreduce(mine, sums, VECTOR, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
    if (world.rank != 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(&round, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    } else {
        for (int rank = 1; rank < world.ranks; rank++) {
            int got = -1;
            MPI_Recv(&got, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_equal(round, got, "message");
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    const long ranks = world.ranks;
    for (int i = 0; i < VECTOR; i += 997) {
        check_equal(ranks * (ranks - 1) / 2 + ranks * i, sums[i], "sum");
    }
}

/* Everybody's large receive is open while it waits in the collective; senders come late to it. */
static void send_before_collective(int round, int use_barrier) {
    check_case("large send before a %s, round %d", use_barrier ? "barrier" : "reduction", round);
    const int left = (world.rank + world.ranks - 1) % world.ranks;
    const int right = (world.rank + 1) % world.ranks;
    MPI_Request request;
    memset(outgoing, round + world.rank, LARGE);
    memset(incoming, -1, LARGE);
    MPI_Irecv(incoming, LARGE, MPI_CHAR, left, TAG, MPI_COMM_WORLD, &request);
    MPI_Send(outgoing, LARGE, MPI_CHAR, right, TAG, MPI_COMM_WORLD);
    if (use_barrier) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        int one = 1;
        int sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        check_equal(world.ranks, sum, "sum");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal((char)(round + left), incoming[0], "first byte");
    check_equal((char)(round + left), incoming[LARGE - 1], "last byte");
}

/* Only rank 0 receives, and goes into the collective first; rank 1 must get its message off. */
static void collective_before_send(int round) {
    check_case("collective before a large send, round %d", round);
    MPI_Request request = MPI_REQUEST_NULL;
    if (world.rank == 0) {
        MPI_Irecv(incoming, LARGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request);
    } else if (world.rank == 1) {
        check_sleep_us(20000);
        memset(outgoing, round, LARGE);
        MPI_Send(outgoing, LARGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (world.rank == 0) {
        check_equal((char)round, incoming[LARGE - 1], "last byte");
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "progress", MPI_THREAD_SINGLE);
    outgoing = check_memory(LARGE);
    incoming = check_memory(LARGE);
    for (int round = 0; round < ROUNDS && world.ranks > 1; round++) {
        receive_during_allreduce(round);
        send_before_collective(round, 0);
        send_before_collective(round, 1);
        collective_before_send(round);
    }
    return check_finish();
}
