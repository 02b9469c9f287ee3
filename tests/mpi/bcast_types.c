/*
 * Broadcasts in which ranks describe the same data differently, as MPI 4.1 §6.4 allows: only the
 * type signatures must match. And broadcasts of derived types, short and long.
 */
#include "check.h"

enum { COUNT_MAX = 60000, GAP = -7 };

static int spread[2 * COUNT_MAX];

/* Every other int, as one type. */
static MPI_Datatype strided(int count) {
    MPI_Datatype type;
    MPI_Type_vector(count, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Pairs of ints, as many as make up `count`, which is even. */
static MPI_Datatype pairs(void) {
    MPI_Datatype type;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

static void broadcast(int count, int root, int nonblocking) {
    check_case("%d ints from %d%s", count, root, nonblocking ? ", nonblocking" : "");
    const int way = (world.rank + root) % 3;
    const int step = way == 1 ? 2 : 1;
    MPI_Datatype type = way == 0 ? MPI_INT : way == 1 ? strided(count) : pairs();
    const int of_type = way == 0 ? count : way == 1 ? 1 : count / 2;
    for (int i = 0; i < 2 * count; i++) {
        spread[i] = GAP;
    }
    if (world.rank == root) {
        for (int i = 0; i < count; i++) {
            spread[i * step] = root * 1000003 + i;
        }
    }
    if (nonblocking) {
        MPI_Request request;
        MPI_Ibcast(spread, of_type, type, root, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Bcast(spread, of_type, type, root, MPI_COMM_WORLD);
    }
    for (int i = 0; i < count; i++) {
        if (!check_equal(root * 1000003 + i, spread[i * step], "element") ||
            (step == 2 && !check_equal(GAP, spread[2 * i + 1], "gap between elements"))) {
            break;
        }
    }
    if (way != 0) {
        MPI_Type_free(&type);
    }
}

int main(int argc, char **argv) {
    const int counts[] = {2, 10, 14, 16, 1000, 5000, COUNT_MAX};
    check_start(argc, argv, "bcast_types", MPI_THREAD_SINGLE);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int root = 0; root < world.ranks; root++) {
            broadcast(counts[i], root, 0);
            broadcast(counts[i], root, 1);
        }
    }
    return check_finish();
}
