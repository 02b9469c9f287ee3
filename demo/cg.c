/*
 * Conjugate gradients on a 3-D Laplacian, the seven-point stencil with zero boundary values.
 *
 * The cube of size^3 unknowns is cut into slabs along z, one per rank. An iteration exchanges one
 * plane with each neighbour and takes two dot products: two 8-byte MPI_Allreduce calls, in which such
 * codes spend their time on many ranks. Nothing here depends on Tributary.
 */
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_DEFAULT = 96, SIZE_MAX_SIDE = 2000, ITERATIONS_DEFAULT = 1000 };
static const double TOLERANCE_DEFAULT = 1e-6;

enum { TAG_UPWARD = 1, TAG_DOWNWARD = 2 };

typedef struct {
    long size;        /* grid points along each axis */
    long iterations;  /* at most this many */
    double tolerance; /* stop when the residual is below this part of the right-hand side */
} options;

/* One rank's slab: `planes` planes of `size` * `size` points each. */
typedef struct {
    long size;
    long first_plane; /* index of our first plane in the whole cube */
    long planes;
    int below; /* neighbour ranks, or MPI_PROC_NULL at the ends */
    int above;
} slab;

typedef struct {
    long iterations;
    double residual; /* 2-norm, relative to the right-hand side's */
    double solve_seconds;
    double allreduce_seconds;
    long allreduce_calls;
} outcome;

/* Time and number of the dot products' MPI_Allreduce calls, of this rank. */
typedef struct {
    double seconds;
    long calls;
} allreduce_meter;

/* The vectors of the method. `direction` has one more plane at each end, for the neighbours'. */
typedef struct {
    double *solution;
    double *residual;
    double *product;
    double *direction;
} vectors;

static void print_help(const char *program) {
    printf("usage: %s [--size N] [--iterations N] [--tolerance X] [--help]\n"
           "Solves a 3-D Laplacian of N^3 unknowns by conjugate gradients.\n\n"
           "  --size N        grid points along each axis, 1 to %d (default %d)\n"
           "  --iterations N  iterations at most (default %d)\n"
           "  --tolerance X   relative residual to stop at; 0 runs all iterations (default %g)\n"
           "  --help          print this text\n",
           program, SIZE_MAX_SIDE, SIZE_DEFAULT, ITERATIONS_DEFAULT, TOLERANCE_DEFAULT);
}

static bool parse_long(const char *text, long min, long max, long *value) {
    char *end = NULL;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= min && *value <= max;
}

static bool parse_tolerance(const char *text, double *value) {
    char *end = NULL;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= 0.0 && *value < 1.0;
}

/* Puts one option and its value into `chosen`; says why not in `problem`. */
static bool parse_option(const char *name, const char *value, options *chosen, char *problem,
                         size_t problem_bytes) {
    const char *allowed = NULL;
    if (value == NULL) {
        snprintf(problem, problem_bytes, "%s is unknown, or lacks a value; see --help", name);
        return false;
    }
    if (strcmp(name, "--size") == 0) {
        allowed = parse_long(value, 1, SIZE_MAX_SIDE, &chosen->size) ? NULL : "1 to 2000";
    } else if (strcmp(name, "--iterations") == 0) {
        allowed = parse_long(value, 0, 1000000000, &chosen->iterations) ? NULL : "0 to 1000000000";
    } else if (strcmp(name, "--tolerance") == 0) {
        allowed = parse_tolerance(value, &chosen->tolerance) ? NULL : "0 up to, not including, 1";
    } else {
        snprintf(problem, problem_bytes, "%s is unknown; see --help", name);
        return false;
    }
    if (allowed != NULL) {
        snprintf(problem, problem_bytes, "%s %s: allowed is %s", name, value, allowed);
    }
    return allowed == NULL;
}

/* Returns -1 to go on, or the exit code to end with, the same on every rank. Rank 0 prints. */
static int parse_options(int argc, char **argv, int rank, options *chosen) {
    char problem[256];
    for (int at = 1; at < argc; at += 2) {
        if (strcmp(argv[at], "--help") == 0) {
            if (rank == 0) {
                print_help(argv[0]);
            }
            return 0;
        }
        if (!parse_option(argv[at], argv[at + 1], chosen, problem, sizeof problem)) {
            if (rank == 0) {
                fprintf(stderr, "cg: %s\n", problem);
            }
            return 2;
        }
    }
    return -1;
}

/* The first planes % ranks slabs get one plane more than the others. */
static slab slab_of_rank(long size, int rank, int ranks) {
    long share = size / ranks;
    long left_over = size % ranks;
    slab own = {.size = size};
    own.planes = share + (rank < left_over ? 1 : 0);
    own.first_plane = rank * share + (rank < left_over ? rank : left_over);
    own.below = rank == 0 ? MPI_PROC_NULL : rank - 1;
    own.above = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
    return own;
}

static size_t plane_points(const slab *own) { return (size_t)own->size * (size_t)own->size; }

static size_t slab_points(const slab *own) { return plane_points(own) * (size_t)own->planes; }

static double *allocate(size_t points) {
    double *vector = calloc(points, sizeof *vector);
    if (vector == NULL) {
        fprintf(stderr, "cg: no memory for a vector of %zu points; use a smaller --size\n", points);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return vector;
}

static vectors vectors_new(const slab *own) {
    size_t points = slab_points(own);
    return (vectors){.solution = allocate(points),
                     .residual = allocate(points),
                     .product = allocate(points),
                     .direction = allocate(points + 2 * plane_points(own))};
}

static void vectors_free(vectors *all) {
    free(all->solution);
    free(all->residual);
    free(all->product);
    free(all->direction);
}

static double dot(const double *left, const double *right, size_t points, allreduce_meter *meter) {
    double local = 0.0;
    double sum = 0.0;
    for (size_t at = 0; at < points; at++) {
        local += left[at] * right[at];
    }
    double started = MPI_Wtime();
    MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    meter->seconds += MPI_Wtime() - started;
    meter->calls++;
    return sum;
}

/* Fills the outer planes of `with_halo` from the neighbours; at the ends of the cube they stay zero. */
static void exchange_halo(const slab *own, double *with_halo) {
    size_t plane = plane_points(own);
    int count = (int)plane;
    double *first = with_halo + plane;
    double *last = with_halo + plane * (size_t)own->planes;
    MPI_Request requests[4];
    MPI_Irecv(with_halo, count, MPI_DOUBLE, own->below, TAG_UPWARD, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(last + plane, count, MPI_DOUBLE, own->above, TAG_DOWNWARD, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Isend(first, count, MPI_DOUBLE, own->below, TAG_DOWNWARD, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(last, count, MPI_DOUBLE, own->above, TAG_UPWARD, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* product = A * line, for one line along x; `line` points into a vector with its halo. */
static void stencil_line(const slab *own, long y, const double *line, double *product) {
    long size = own->size;
    long plane = size * size;
    for (long x = 0; x < size; x++) {
        double sum = 6.0 * line[x] - line[x - plane] - line[x + plane];
        sum -= x > 0 ? line[x - 1] : 0.0;
        sum -= x < size - 1 ? line[x + 1] : 0.0;
        sum -= y > 0 ? line[x - size] : 0.0;
        sum -= y < size - 1 ? line[x + size] : 0.0;
        product[x] = sum;
    }
}

static void apply_laplacian(const slab *own, double *with_halo, double *product) {
    exchange_halo(own, with_halo);
    const double *line = with_halo + plane_points(own);
    for (long z = 0; z < own->planes; z++) {
        for (long y = 0; y < own->size; y++) {
            stencil_line(own, y, line, product);
            line += own->size;
            product += own->size;
        }
    }
}

/* A right-hand side without symmetry, so that the method does not converge early by chance. */
static void fill_right_hand_side(const slab *own, double *values) {
    long at = 0;
    double scale = 1.0 / (double)own->size;
    for (long z = own->first_plane; z < own->first_plane + own->planes; z++) {
        for (long y = 0; y < own->size; y++) {
            for (long x = 0; x < own->size; x++) {
                double wave = sin(7.0 * scale * (double)x) + cos(5.0 * scale * (double)y);
                values[at++] = 1.0 + wave * (double)(z + 1) * scale;
            }
        }
    }
}

/* target += factor * source */
static void add_scaled(double *target, double factor, const double *source, size_t points) {
    for (size_t at = 0; at < points; at++) {
        target[at] += factor * source[at];
    }
}

/* target = source + factor * target */
static void scale_and_add(double *target, double factor, const double *source, size_t points) {
    for (size_t at = 0; at < points; at++) {
        target[at] = source[at] + factor * target[at];
    }
}

/* Solves A * solution = right-hand side, from a solution of zero. */
static outcome solve(const slab *own, const options *chosen, vectors *all) {
    size_t points = slab_points(own);
    double *direction = all->direction + plane_points(own);
    allreduce_meter meter = {0.0, 0};
    outcome reached = {.iterations = 0};

    fill_right_hand_side(own, all->residual);
    memcpy(direction, all->residual, points * sizeof *direction);
    MPI_Barrier(MPI_COMM_WORLD);
    double started = MPI_Wtime();
    double square = dot(all->residual, all->residual, points, &meter);
    double norm_at_start = sqrt(square);
    while (reached.iterations < chosen->iterations &&
           sqrt(square) > chosen->tolerance * norm_at_start) {
        apply_laplacian(own, all->direction, all->product);
        double step = square / dot(direction, all->product, points, &meter);
        add_scaled(all->solution, step, direction, points);
        add_scaled(all->residual, -step, all->product, points);
        double square_next = dot(all->residual, all->residual, points, &meter);
        scale_and_add(direction, square_next / square, all->residual, points);
        square = square_next;
        reached.iterations++;
    }
    reached.residual = sqrt(square) / norm_at_start;
    reached.solve_seconds = MPI_Wtime() - started;
    reached.allreduce_seconds = meter.seconds;
    reached.allreduce_calls = meter.calls;
    return reached;
}

/* The mean of the solution: a second figure by which runs are compared. */
static double solution_mean(const slab *own, const vectors *all) {
    double local = 0.0;
    double sum = 0.0;
    double unknowns = (double)own->size * (double)own->size * (double)own->size;
    for (size_t at = 0; at < slab_points(own); at++) {
        local += all->solution[at];
    }
    MPI_Reduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum / unknowns;
}

static void print_outcome(const slab *own, int ranks, const outcome *reached, double mean) {
    printf("ranks %d\n", ranks);
    printf("size %ld\n", own->size);
    printf("iterations %ld\n", reached->iterations);
    printf("residual %.17g\n", reached->residual);
    printf("solution_mean %.17g\n", mean);
    printf("solve_seconds %.6f\n", reached->solve_seconds);
    printf("allreduce_calls %ld\n", reached->allreduce_calls);
    printf("allreduce_seconds %.6f\n", reached->allreduce_seconds);
}

static void solve_and_print(const options *chosen, int rank, int ranks) {
    slab own = slab_of_rank(chosen->size, rank, ranks);
    vectors all = vectors_new(&own);
    outcome reached = solve(&own, chosen, &all);
    double mean = solution_mean(&own, &all);
    if (rank == 0) {
        print_outcome(&own, ranks, &reached, mean);
    }
    vectors_free(&all);
}

int main(int argc, char **argv) {
    options chosen = {SIZE_DEFAULT, ITERATIONS_DEFAULT, TOLERANCE_DEFAULT};
    int rank = 0;
    int ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int exit_code = parse_options(argc, argv, rank, &chosen);
    if (exit_code < 0 && chosen.size < ranks) {
        if (rank == 0) {
            fprintf(stderr, "cg: --size %ld: allowed is %d (one plane a rank) or more\n",
                    chosen.size, ranks);
        }
        exit_code = 2;
    }
    if (exit_code < 0) {
        solve_and_print(&chosen, rank, ranks);
        exit_code = 0;
    }
    MPI_Finalize();
    return exit_code;
}
