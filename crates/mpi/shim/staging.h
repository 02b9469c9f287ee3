/*
 * Memory that this library allocates for an operation: a dense copy of elements that have gaps or another
 * order in the program's memory, and the cuts between blocks that differ in length.
 *
 * MPI_Pack writes the elements in the order of the type map with nothing between them, in both MPIs on
 * equal machines. staging_open() checks that.
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

/* One rank's block of a buffer whose blocks differ. */
typedef struct staging_block {
    MPI_Aint offset_bytes; /* from the start of the buffer */
    int count;
} staging_block;

/* A broadcast that is longer goes in pieces of so many bytes (pieces.h). */
#define STAGING_PIECE_BYTES (INT64_C(16) << 20)

typedef struct staging {
    bool needed;       /* a dense copy, or pieces */
    bool in_pieces;    /* without one copy of all */
    bool is_dense;     /* in pieces that are part of the program's buffer */
    bool packs;        /* from this rank's elements, `from` */
    bool unpacks;      /* to this rank's elements, `to` */
    staging_side from;
    staging_side to;   /* of a nonblocking operation: with a duplicate of the datatype */
    bool owns_datatype;
    bool owns_source_datatype; /* of a persistent operation: so has `from` */
    char *bytes;       /* the dense copy */
    int len_bytes;
    int packed_at;     /* where this rank's elements begin in the dense copy */
    bool needs_cuts;   /* the blocks differ in length */
    uint64_t *cuts;
    const int *counts; /* elements of each rank's block, in one of two arrays */
    const MPI_Count *large_counts;
    int ranks;
    int padded_bytes;  /* if not 0: the blocks of `to` lie anywhere, and take up so much each in the dense copy */
    const int *places; /* where each block begins, in extents of the datatype, in one of two arrays */
    const MPI_Aint *large_places;
    staging_block *blocks;
} staging;

/* Whether an operation needs no such memory. */
static inline bool staging_is_idle(const staging *through) {
    return !through->needed && !through->needs_cuts;
}

/*
 * MPI_Pack of elements behind the first `position` of `len_bytes` bytes, and MPI_Unpack from there. Return an MPI
 * error code.
 */
int staging_pack_side(char *bytes, int len_bytes, int position, const staging_side *from);
int staging_unpack_side(char *bytes, int len_bytes, int position, const staging_side *to);

/* Called once, after shim_self exists. */
void staging_open(void);

/* Set by staging_open(). */
extern bool staging_pack_is_dense;

/*
 * False if this MPI_Pack writes more than the elements; broadcasts and allgathers then pass. Inline: each broadcast asks, also of
 * a few bytes.
 */
static inline bool staging_is_possible(void) {
    return staging_pack_is_dense;
}

/* False for a datatype that is not committed. Tries MPI_Pack: MPI has no function that tells. */
bool staging_accepts(MPI_Datatype datatype);

/*
 * Allocates and fills the memory, and points `operation` at it. With `keep`, the program may free the
 * datatype before staging_unload(). Returns an MPI error code.
 */
int staging_load(staging *through, bool keep, tributary_operation *operation);

/*
 * The same for an operation that is started again and again, except that the memory is filled by
 * staging_pack(), at each start.
 */
int staging_keep(staging *through, tributary_operation *operation);

/* Fills the dense copy with this rank's elements, if it sends any. Returns an MPI error code. */
int staging_pack(const staging *through);

/* If this rank receives, writes the dense copy to the program's buffer. Returns an MPI error code. */
int staging_unload(staging *through);

/* Frees what staging_load() or staging_keep() allocated. */
void staging_free(staging *through);

#endif
