/* Intracommunicators from every MPI constructor; a test runs on each. */
#ifndef SHAPES_H
#define SHAPES_H

#include <mpi.h>

typedef struct {
    const char *name;
    MPI_Comm comm; /* MPI_COMM_NULL on ranks that are no members */
    int rank;
    int size;
} shape;

enum { SHAPES = 9 };

/* Collective over MPI_COMM_WORLD; the same order on all ranks, MPI_COMM_WORLD first. */
void shapes_make(shape shapes[SHAPES]);

/* Frees what shapes_make() made. */
void shapes_free(shape shapes[SHAPES]);

#endif
