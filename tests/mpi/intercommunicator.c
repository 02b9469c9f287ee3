/*
 * Collectives between two groups, in which ranks give different roots and buffers: all of them go to the MPI, and the
 * report has one reason for all, wherever the ranks are that count.
 */
#include <stdio.h>

#include "check.h"

enum { ELEMENTS = 5, TAG = 9 };

static MPI_Comm between_halves(int half, MPI_Comm *own) {
    MPI_Comm between;
    MPI_Comm_split(MPI_COMM_WORLD, half, world.rank, own);
    MPI_Intercomm_create(*own, 0, MPI_COMM_WORLD, half == 0 ? world.ranks / 2 : 0, TAG, &between);
    return between;
}

/* Rank 0 of the group `from` sends to all of the other group. */
static void broadcast(MPI_Comm between, int half, int from, int own_rank) {
    int numbers[ELEMENTS] = {0};
    int root = half != from ? 0 : own_rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    for (int at = 0; root == MPI_ROOT && at < ELEMENTS; at++) {
        numbers[at] = at + 1;
    }
    check_case("a broadcast from group %d", from);
    MPI_Bcast(numbers, ELEMENTS, MPI_INT, root, between);
    check_equal(root == MPI_PROC_NULL ? 0 : ELEMENTS, numbers[ELEMENTS - 1], "the last number");
}

/* Rank 0 of the group `to` gets the sum of the other group. */
static void reduce(MPI_Comm between, int half, int to, int own_rank) {
    int one = 1;
    int sum = -1;
    int root = half != to ? 0 : own_rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    check_case("a reduction to group %d", to);
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, between);
    check_equal(root == MPI_ROOT ? world.ranks / 2 : -1, sum, "the sum");
}

int main(int argc, char **argv) {
    MPI_Comm own;
    int own_rank;
    check_start(argc, argv, "intercommunicator", MPI_THREAD_SINGLE);
    int half = world.rank < world.ranks / 2 ? 0 : 1;
    MPI_Comm between = between_halves(half, &own);
    MPI_Comm_rank(own, &own_rank);
    for (int group = 0; group < 2; group++) {
        broadcast(between, half, group, own_rank);
        reduce(between, half, group, own_rank);
    }
    MPI_Barrier(between);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world.rank == 0) {
        printf("passed %d\n", 5);
    }
    MPI_Comm_free(&between);
    MPI_Comm_free(&own);
    return check_finish();
}
