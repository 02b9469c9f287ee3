/*
 * A dense copy of a broadcast's elements, for datatypes with gaps or an order of their own.
 *
 * MPI_Pack writes the elements in the order of the type map without anything between them, in both
 * MPIs on equal machines; staging_open() checks that it does.
 */
#ifndef TRIBUTARY_STAGING_H
#define TRIBUTARY_STAGING_H

#include "beneath.h"
#include "tributary_core.h"

typedef struct staging {
    bool needed;
    bool is_root;
    void *user;
    int count;
    MPI_Datatype datatype; /* a duplicate while a nonblocking operation is on its way */
    bool owns_datatype;
    char *bytes; /* the dense copy */
    int len_bytes;
} staging;

/* Once, after shim_self exists. */
void staging_open(void);

/* False when MPI_Pack here writes more than the elements; types with gaps then pass. */
bool staging_is_possible(void);

/*
 * Allocates the dense copy, fills it at the root, and points `operation` at it. With `keep`, the
 * datatype may be freed by the program before staging_unload(). Returns an MPI error code.
 */
int staging_load(staging *through, bool keep, tributary_operation *operation);

/* Writes the dense copy to the program's buffer, except at the root. Returns an MPI error code. */
int staging_unload(staging *through);

/* Frees what staging_load() took. */
void staging_free(staging *through);

#endif
