/*
 * Different descriptions of the same MPI_INTs: equal type signatures (MPI 4.1, 6.4), different positions
 * in memory.
 */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include <mpi.h>

/* A layout of `ints` takes up at most LAYOUTS_SPREAD * `ints`. */
enum { LAYOUTS = 6, LAYOUTS_SPREAD = 3 };

/* position() is the offset of the i-th int, in ints. */
typedef struct {
    const char *name;
    MPI_Datatype type;
    int count;
    int (*position)(int index, int ints);
} layout;

/* `ints` is even and at least 2. */
layout layout_make(int which, int ints);

void layout_free(layout *made);

#endif
