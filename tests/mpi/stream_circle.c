/*
 * Two long vectors over two communicators, both streamed. Rank 0, which does not lead its host on the first, joins it only
 * after the second is complete, as MPI allows: the group that has the tree's stream lock must not wait for rank 0.
 */
#include "check.h"

enum { ELEMENTS = 100000 };

static void check_sums(const int *sums) {
    long long wrong = 0;
    for (int at = 0; at < ELEMENTS; at++) {
        wrong += sums[at] != world.ranks * (world.ranks - 1) / 2 + world.ranks * at;
    }
    check_equal(0, wrong, "elements that are wrong");
}

int main(int argc, char **argv) {
    MPI_Comm all;
    MPI_Comm even;
    MPI_Request first = MPI_REQUEST_NULL;
    check_start(argc, argv, "stream_circle", MPI_THREAD_SINGLE);
    int *vector = check_memory(ELEMENTS * sizeof *vector);
    int *sums = check_memory(ELEMENTS * sizeof *sums);
    int *others = check_memory(ELEMENTS * sizeof *others);
    for (int at = 0; at < ELEMENTS; at++) {
        vector[at] = world.rank + at;
    }
    check_case("communicators");
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &all);
    MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &even);
    check_case("a stream that waits for rank 0");
    if (world.rank != 0) {
        MPI_Iallreduce(vector, sums, ELEMENTS, MPI_INT, MPI_SUM, all, &first);
    }
    /* The others have asked for the lock by then, if they ask before rank 0 has come. */
    check_sleep_us(300000);
    if (world.rank % 2 == 0) {
        MPI_Allreduce(vector, others, ELEMENTS, MPI_INT, MPI_SUM, even);
    }
    if (world.rank == 0) {
        MPI_Iallreduce(vector, sums, ELEMENTS, MPI_INT, MPI_SUM, all, &first);
    }
    MPI_Wait(&first, MPI_STATUS_IGNORE);
    check_sums(sums);
    MPI_Comm_free(&even);
    MPI_Comm_free(&all);
    return check_finish();
}
