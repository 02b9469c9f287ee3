/*
 * Calls that the underlying MPI runs, or combines for: user-defined operators, derived datatypes in
 * reductions, intercommunicators; and complex numbers between them. The results must be as without the
 * preload library.
 */
#include <complex.h>
#include <string.h>

#include "check.h"

enum { MAPS = 57, PRIME = 32003, ELEMENTS = 40 };

/* x -> factor * x + offset, modulo PRIME. Composing two is associative and not commutative. */
typedef struct {
    int factor;
    int offset;
} affine;

static affine compose(affine first, affine second) {
    long long factor = (long long)first.factor * second.factor % PRIME;
    long long offset = ((long long)second.factor * first.offset + second.offset) % PRIME;
    return (affine){(int)factor, (int)offset};
}

/* `in` comes from lower ranks than `inout`. */
static void compose_all(void *in, void *inout, int *length, MPI_Datatype *type) {
    affine *first = in;
    affine *second = inout;
    (void)type;
    for (int at = 0; at < *length; at++) {
        second[at] = compose(first[at], second[at]);
    }
}

static affine affine_of(uint64_t salt, int rank, int index) {
    uint64_t bits = check_hash(salt, (uint64_t)rank, (uint64_t)index);
    return (affine){(int)(bits % (PRIME - 1)) + 1, (int)((bits >> 32) % PRIME)};
}

static void check_affine(const affine *got, uint64_t salt, int ranks) {
    for (int index = 0; index < MAPS; index++) {
        affine all = affine_of(salt, 0, index);
        for (int rank = 1; rank < ranks; rank++) {
            all = compose(all, affine_of(salt, rank, index));
        }
        if (!check_that(all.factor == got[index].factor && all.offset == got[index].offset,
                        "element %d: expected (%d, %d), got (%d, %d)", index, all.factor,
                        all.offset, got[index].factor, got[index].offset)) {
            return;
        }
    }
}

static void run_user_operator(MPI_Comm comm, const char *name, MPI_Datatype type, MPI_Op op) {
    affine mine[MAPS];
    affine all[MAPS];
    MPI_Request request;
    int rank;
    int ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    for (int form = 0; form < 4; form++) {
        int root = (form + 1) % ranks;
        check_case("user operator, form %d on %s", form, name);
        for (int index = 0; index < MAPS; index++) {
            mine[index] = affine_of((uint64_t)form, rank, index);
        }
        memset(all, 0, sizeof all);
        if (form == 0) {
            MPI_Allreduce(mine, all, MAPS, type, op, comm);
        } else if (form == 1) {
            MPI_Iallreduce(mine, all, MAPS, type, op, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (form == 2) {
            memcpy(all, mine, sizeof all);
            MPI_Allreduce(MPI_IN_PLACE, all, MAPS, type, op, comm);
        } else {
            MPI_Reduce(mine, all, MAPS, type, op, root, comm);
        }
        if (form != 3 || rank == root) {
            check_affine(all, (uint64_t)form, ranks);
        }
    }
}

static void run_user_operators(void) {
    MPI_Comm reversed;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &reversed);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose_all, 0, &op);
    run_user_operator(MPI_COMM_WORLD, "world", type, op);
    run_user_operator(reversed, "reversed", type, op);
    run_user_operator(MPI_COMM_SELF, "self", type, op);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Comm_free(&reversed);
}

/* Adds every second double: the datatype has gaps, which the operator skips. */
static void add_with_gaps(void *in, void *inout, int *length, MPI_Datatype *type) {
    MPI_Aint low;
    MPI_Aint extent;
    PMPI_Type_get_extent(*type, &low, &extent);
    for (int at = 0; at < *length; at++) {
        double *from = (double *)((char *)in + at * extent);
        double *into = (double *)((char *)inout + at * extent);
        *into += *from;
    }
}

static void run_derived_type(void) {
    double mine[2 * ELEMENTS];
    double sum[2 * ELEMENTS];
    MPI_Datatype type;
    MPI_Op op;
    check_case("derived datatype with gaps in MPI_Allreduce");
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_with_gaps, 1, &op);
    for (int at = 0; at < 2 * ELEMENTS; at++) {
        mine[at] = world.rank + at;
        sum[at] = -1;
    }
    MPI_Allreduce(mine, sum, ELEMENTS, type, op, MPI_COMM_WORLD);
    double ranks = world.ranks * (world.ranks - 1) / 2.0;
    for (int at = 0; at < 2 * ELEMENTS; at++) {
        double wanted = at % 2 == 0 ? ranks + (double)at * world.ranks : -1;
        check_that(sum[at] == wanted, "element %d: expected %g, got %g", at, wanted, sum[at]);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

static double complex unit_power(int exponent) {
    static const double parts[5] = {1, 0, -1, 0, 1};
    return parts[exponent % 4] + parts[(exponent + 3) % 4] * I;
}

static bool same_complex(double complex wanted, double complex got) {
    return creal(wanted) == creal(got) && cimag(wanted) == cimag(got);
}

static void run_double_complex(MPI_Datatype type, const char *name) {
    double complex mine[ELEMENTS];
    double complex sum[ELEMENTS];
    double complex product[ELEMENTS];
    check_case("%s", name);
    for (int at = 0; at < ELEMENTS; at++) {
        mine[at] = unit_power(world.rank + at);
    }
    MPI_Allreduce(mine, sum, ELEMENTS, type, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(mine, product, ELEMENTS, type, MPI_PROD, MPI_COMM_WORLD);
    for (int at = 0; at < ELEMENTS; at++) {
        double complex wanted_sum = 0;
        int exponent = 0;
        for (int rank = 0; rank < world.ranks; rank++) {
            wanted_sum += unit_power(rank + at);
            exponent += rank + at;
        }
        check_that(same_complex(wanted_sum, sum[at]), "sum %d: expected %g%+gi, got %g%+gi", at,
                   creal(wanted_sum), cimag(wanted_sum), creal(sum[at]), cimag(sum[at]));
        check_that(same_complex(unit_power(exponent), product[at]),
                   "product %d: expected i^%d, got %g%+gi", at, exponent, creal(product[at]),
                   cimag(product[at]));
    }
}

static void run_float_complex(MPI_Datatype type, const char *name) {
    float complex mine = (float)world.rank + 2.0f * I;
    float complex sum = 0;
    float wanted = (float)(world.ranks * (world.ranks - 1)) / 2;
    check_case("%s", name);
    MPI_Allreduce(&mine, &sum, 1, type, MPI_SUM, MPI_COMM_WORLD);
    check_that(crealf(sum) == wanted && cimagf(sum) == 2.0f * (float)world.ranks,
               "sum: expected %g%+gi, got %g%+gi", (double)wanted, 2.0 * world.ranks,
               (double)crealf(sum), (double)cimagf(sum));
}

static void run_complex(void) {
    run_double_complex(MPI_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX");
    run_float_complex(MPI_C_FLOAT_COMPLEX, "MPI_C_FLOAT_COMPLEX");
    if (MPI_DOUBLE_COMPLEX != MPI_DATATYPE_NULL && MPI_COMPLEX != MPI_DATATYPE_NULL) {
        run_double_complex(MPI_DOUBLE_COMPLEX, "MPI_DOUBLE_COMPLEX");
        run_float_complex(MPI_COMPLEX, "MPI_COMPLEX");
    }
}

/* A reduction gives each group the other group's result; a rooted call goes from one to the other. */
static void run_on_intercommunicator(MPI_Comm inter, bool even, int even_ranks, int odd_ranks) {
    int local_rank;
    int mine = 100 + world.rank;
    int sum = 0;
    int got = -1;
    int even_sum = 100 * even_ranks + even_ranks * (even_ranks - 1);
    int odd_sum = 100 * odd_ranks + odd_ranks * odd_ranks;
    MPI_Request request;
    MPI_Comm_rank(inter, &local_rank);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    check_equal(even ? odd_sum : even_sum, sum, "MPI_Allreduce");
    sum = 0;
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_equal(even ? odd_sum : even_sum, sum, "MPI_Iallreduce");
    sum = 0;
    int root = !even ? 0 : local_rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, root, inter);
    check_equal(root == MPI_ROOT ? odd_sum : 0, sum, "MPI_Reduce");
    got = root == MPI_ROOT ? 321 : -1;
    MPI_Bcast(&got, 1, MPI_INT, root, inter);
    check_equal(even && root != MPI_ROOT ? -1 : 321, got, "MPI_Bcast");
    MPI_Barrier(inter);
    MPI_Ibarrier(inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void run_intercommunicator(void) {
    MPI_Comm side;
    MPI_Comm inter;
    MPI_Comm merged;
    bool even = world.rank % 2 == 0;
    int sum = 0;
    int one = 1;
    if (world.ranks < 2) {
        return;
    }
    check_case("intercommunicator");
    MPI_Comm_split(MPI_COMM_WORLD, even ? 0 : 1, world.rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, even ? 1 : 0, 12, &inter);
    run_on_intercommunicator(inter, even, (world.ranks + 1) / 2, world.ranks / 2);
    check_case("merged intercommunicator");
    MPI_Intercomm_merge(inter, even ? 0 : 1, &merged);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    check_equal(world.ranks, sum, "MPI_Allreduce");
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&side);
}

/* Offloaded operations between others that are not: both must stay in order. */
static void run_in_turns(void) {
    affine mine = affine_of(9, world.rank, 0);
    affine all;
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose_all, 0, &op);
    for (int round = 0; round < 20; round++) {
        long own = world.rank + round;
        long max = -1;
        float complex number = 1.0f * I;
        float complex sum = 0;
        MPI_Request request;
        check_case("offloaded and passed operations alternate, round %d", round);
        MPI_Allreduce(&mine, &all, 1, type, op, MPI_COMM_WORLD);
        MPI_Iallreduce(&number, &sum, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Allreduce(&own, &max, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
        check_equal(world.ranks - 1 + round, max, "offloaded maximum");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_that(cimagf(sum) == (float)world.ranks, "complex sum is %g", (double)cimagf(sum));
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

/* Collectives that are not offloaded must find their communicator unchanged. */
static void run_other_collectives(void) {
    int mine = world.rank + 1;
    int got = 0;
    check_case("MPI_Scan and MPI_Exscan");
    MPI_Scan(&mine, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(mine * (mine + 1) / 2, got, "MPI_Scan");
    got = 0;
    MPI_Exscan(&mine, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_equal(world.rank == 0 ? 0 : mine * (mine - 1) / 2, got, "MPI_Exscan");
    check_case("MPI_Reduce_scatter_block");
    int all[64];
    if (world.ranks <= 64) {
        for (int at = 0; at < world.ranks; at++) {
            all[at] = at + world.rank;
        }
        MPI_Reduce_scatter_block(all, &got, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int ranks = world.ranks * (world.ranks - 1) / 2;
        check_equal(world.ranks * world.rank + ranks, got, "MPI_Reduce_scatter_block");
    }
}

int main(int argc, char **argv) {
    check_start(argc, argv, "passing", MPI_THREAD_SINGLE);
    run_user_operators();
    run_derived_type();
    run_complex();
    run_intercommunicator();
    run_other_collectives();
    run_in_turns();
    return check_finish();
}
