/*
 * Memory of our own that an operation needs: a dense copy of elements with gaps or an order of their
 * own, and the places of blocks that differ in length.
 *
 * MPI_Pack writes the elements in the order of the type map without anything between them, in both
 * MPIs on equal machines; staging_open() checks that it does.
 */
#ifndef TRIBUTARY_STAGING_H
#define TRIBUTARY_STAGING_H

#include "underlying.h"
#include "tributary_core.h"

/* Elements in the program's memory. */
typedef struct staging_side {
    void *user;
    int count;
    MPI_Datatype datatype;
} staging_side;

typedef struct staging {
    bool needed;       /* a dense copy */
    bool packs;        /* it gets this rank's elements, `from` */
    bool unpacks;      /* it goes to this rank's elements, `to` */
    staging_side from;
    staging_side to;   /* its datatype is a duplicate while a nonblocking operation is on its way */
    bool owns_datatype;
    char *bytes;       /* the dense copy */
    int len_bytes;
    int packed_at;     /* where in it this rank's elements begin */
    bool needs_cuts;   /* the blocks differ in length */
    uint64_t *cuts;
    const int *counts; /* elements of each rank's block, in either array */
    const MPI_Count *large_counts;
    int ranks;
} staging;

/* Whether an operation can do without. */
static inline bool staging_is_idle(const staging *through) {
    return !through->needed && !through->needs_cuts;
}

/* Once, after shim_self exists. */
void staging_open(void);

/* False when MPI_Pack here writes more than the elements; types with gaps then pass. */
bool staging_is_possible(void);

/* False for a datatype that is not committed: MPI has no other way to ask. */
bool staging_accepts(MPI_Datatype datatype);

/*
 * Allocates what is needed, fills it, and points `operation` at it. With `keep`, the datatype may be
 * freed by the program before staging_unload(). Returns an MPI error code.
 */
int staging_load(staging *through, bool keep, tributary_operation *operation);

/* Writes the dense copy to the program's buffer, where this rank receives. Returns an MPI error code. */
int staging_unload(staging *through);

/* Frees what staging_load() took. */
void staging_free(staging *through);

#endif
