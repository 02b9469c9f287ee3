/*
 * What is left to the MPI beneath, next to what isn't: user-defined operators (one that does not
 * commute), derived datatypes, complex numbers, intercommunicators. Results must be as MPI defines.
 */
#include "check.h"

#include <complex.h>

enum { COUNT = 50 };

typedef struct {
    int scale;
    int shift;
} affine;

/* Composition of x -> scale * x + shift, in arithmetic that wraps: it does not commute. */
static void compose(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    const affine *left = in;
    affine *right = inout;
    for (int i = 0; i < *count; i++) {
        const unsigned scale = (unsigned)left[i].scale * (unsigned)right[i].scale;
        const unsigned shift =
            (unsigned)left[i].shift * (unsigned)right[i].scale + (unsigned)right[i].shift;
        right[i] = (affine){(int)scale, (int)shift};
    }
}

static affine contribution(int rank, int i) {
    return (affine){(int)(check_hash(1, rank, i) % 1000) + 2, (int)(check_hash(2, rank, i) % 1000)};
}

static void check_user_operator(MPI_Datatype pair, MPI_Op op) {
    affine mine[COUNT];
    affine all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        mine[i] = contribution(world.rank, i);
    }
    check_case("user-defined operator on a derived datatype");
    MPI_Allreduce(mine, all, COUNT, pair, op, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        affine expected[1] = {contribution(world.ranks - 1, i)};
        for (int rank = world.ranks - 2; rank >= 0; rank--) {
            affine left[1] = {contribution(rank, i)};
            int one = 1;
            compose(left, expected, &one, &pair);
        }
        check_equal(expected[0].scale, all[i].scale, "scale");
        check_equal(expected[0].shift, all[i].shift, "shift");
    }
}

static void check_complex(void) {
    check_case("complex numbers");
    double complex mine[COUNT];
    double complex sum[COUNT];
    for (int i = 0; i < COUNT; i++) {
        mine[i] = world.rank + i * I;
    }
    MPI_Request request;
    MPI_Iallreduce(mine, sum, COUNT, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const int ranks = world.ranks;
    for (int i = 0; i < COUNT; i++) {
        check_equal(ranks * (ranks - 1) / 2, (long long)creal(sum[i]), "real part");
        check_equal((long long)ranks * i, (long long)cimag(sum[i]), "imaginary part");
    }
}

/* Each group gets the other's sum: that is what an allreduce over two groups means. */
static void check_intercommunicator(void) {
    if (world.ranks < 2) {
        return;
    }
    check_case("intercommunicator");
    const int color = world.rank % 2;
    MPI_Comm half;
    MPI_Comm inter;
    MPI_Comm merged;
    MPI_Comm_split(MPI_COMM_WORLD, color, world.rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - color, 11, &inter);
    int sum = -1;
    MPI_Allreduce(&world.rank, &sum, 1, MPI_INT, MPI_SUM, inter);
    int expected = 0;
    for (int rank = 1 - color; rank < world.ranks; rank += 2) {
        expected += rank;
    }
    check_equal(expected, sum, "the other group's sum");
    MPI_Barrier(inter);
    check_case("merged intercommunicator");
    MPI_Intercomm_merge(inter, color, &merged);
    int total = -1;
    MPI_Allreduce(&world.rank, &total, 1, MPI_INT, MPI_SUM, merged);
    check_equal(world.ranks * (world.ranks - 1) / 2, total, "everybody's sum");
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Ordinary operations between the others: their order must not suffer. */
static void check_offloaded(int round) {
    check_case("offloaded operation %d", round);
    long mine = world.rank + round;
    long max = -1;
    MPI_Allreduce(&mine, &max, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    check_equal(world.ranks - 1 + round, max, "maximum");
}

int main(int argc, char **argv) {
    check_start(argc, argv, "passing", MPI_THREAD_SINGLE);
    MPI_Datatype pair;
    MPI_Op op;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &op);
    for (int round = 0; round < 20; round++) {
        check_user_operator(pair, op);
        check_offloaded(round);
        check_complex();
        check_offloaded(round + 1);
        check_intercommunicator();
    }
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
    return check_finish();
}
