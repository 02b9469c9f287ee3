/*
 * Conjugate gradients on a line of points: a product with neighbours' values, then inner products, three
 * allreduces of 8 bytes an iteration as in HPCG. Prints the seconds of the iterations and the residual.
 *
 *   conjugate POINTS ITERATIONS     POINTS of each rank
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks, points;

/* Sums the products of two vectors over all ranks. */
static double inner(const double *one, const double *other) {
    double own = 0;
    for (int at = 1; at <= points; at++) {
        own += one[at] * other[at];
    }
    double sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* Fetches the neighbours' values, then multiplies by 2.01 on and -1 beside the diagonal. */
static void product(double *from, double *to) {
    int before = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int after = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    from[0] = from[points + 1] = 0;
    MPI_Sendrecv(&from[1], 1, MPI_DOUBLE, before, 0, &from[points + 1], 1, MPI_DOUBLE, after, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&from[points], 1, MPI_DOUBLE, after, 1, &from[0], 1, MPI_DOUBLE, before, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 1; at <= points; at++) {
        to[at] = 2.01 * from[at] - from[at - 1] - from[at + 1];
    }
}

static double *vector(void) {
    double *made = calloc((size_t)points + 2, sizeof *made);
    if (made == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return made;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    points = argc > 1 ? atoi(argv[1]) : 1000;
    int iterations = argc > 2 ? atoi(argv[2]) : 1000;
    double *x = vector(), *r = vector(), *p = vector(), *ap = vector();
    for (int at = 1; at <= points; at++) {
        r[at] = p[at] = 1 + (at + rank) % 7;
    }
    double rr = inner(r, r);
    double norm = rr;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int iteration = 0; iteration < iterations; iteration++) {
        product(p, ap);
        /* Once the residual is 0 the rest is made of the same calls. */
        double alpha = rr / fmax(inner(p, ap), 1e-300);
        for (int at = 1; at <= points; at++) {
            x[at] += alpha * p[at];
            r[at] -= alpha * ap[at];
        }
        double next = inner(r, r);
        norm = inner(x, r);
        double beta = next / fmax(rr, 1e-300);
        for (int at = 1; at <= points; at++) {
            p[at] = r[at] + beta * p[at];
        }
        rr = next;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"seconds\": %.6f, \"residual\": %g, \"error\": %g}\n", MPI_Wtime() - began, rr, norm);
    }
    MPI_Finalize();
    return 0;
}
