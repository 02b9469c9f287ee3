/* Packs and unpacks around an operation, and computes where its blocks begin. */
#include "staging.h"
#include "shim.h"

#include <stdlib.h>
#include <string.h>

bool staging_pack_is_dense;

void staging_open(void) {
    const int numbers[3] = {0x01020304, -7, 0x0a0b0c0d};
    char packed[64];
    int position = 0;
    int error =
        underlying.Pack(numbers, 3, MPI_INT, packed, (int)sizeof packed, &position, shim_self);
    staging_pack_is_dense = error == MPI_SUCCESS && position == (int)sizeof numbers &&
                            memcmp(packed, numbers, sizeof numbers) == 0;
}

/* Called at every broadcast and allgather: 8 to 10 ns. An attribute that caches it would take 5 to 6. */
bool staging_accepts(MPI_Datatype datatype) {
    char nothing[1] = {0};
    int position = 0;
    return underlying.Pack(nothing, 0, datatype, nothing, (int)sizeof nothing, &position, shim_self) ==
           MPI_SUCCESS;
}

static MPI_Count count_of(const staging *through, int rank) {
    return through->counts != NULL ? through->counts[rank] : through->large_counts[rank];
}

/* The program may change its arrays once a call is over. */
static int load_blocks(staging *through) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    int error = underlying.Type_get_extent(through->to.datatype, &lower, &extent);
    if (error != MPI_SUCCESS) {
        return error;
    }
    through->blocks = malloc((size_t)through->ranks * sizeof *through->blocks);
    if (through->blocks == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int rank = 0; rank < through->ranks; rank++) {
        MPI_Aint place =
            through->places != NULL ? through->places[rank] : through->large_places[rank];
        through->blocks[rank] = (staging_block){
            .offset_bytes = place * extent,
            .count = (int)count_of(through, rank),
        };
    }
    return MPI_SUCCESS;
}

static int load_cuts(staging *through, tributary_operation *operation) {
    through->cuts = malloc(((size_t)through->ranks + 1) * sizeof *through->cuts);
    if (through->cuts == NULL) {
        return MPI_ERR_NO_MEM;
    }
    uint64_t end = 0;
    for (int rank = 0; rank < through->ranks; rank++) {
        through->cuts[rank] = end;
        end += (uint64_t)count_of(through, rank);
    }
    through->cuts[through->ranks] = end;
    operation->cuts = through->cuts;
    return MPI_SUCCESS;
}

/*
 * The same elements, seen from `origin`: MPICH's MPI_Pack and MPI_Unpack refuse the null address, which
 * MPI_BOTTOM is, even if the datatype holds whole addresses. The caller frees the datatype.
 */
static int see_from(char *origin, const staging_side *side, staging_side *seen) {
    MPI_Aint displacement = -(MPI_Aint)(uintptr_t)origin;
    *seen = (staging_side){.user = origin, .count = 1};
    int error = underlying.Type_create_hindexed(1, &side->count, &displacement, side->datatype,
                                                &seen->datatype);
    if (error != MPI_SUCCESS) {
        return error;
    }
    error = underlying.Type_commit(&seen->datatype);
    if (error != MPI_SUCCESS) {
        underlying.Type_free(&seen->datatype);
    }
    return error;
}

int staging_pack_side(char *bytes, int len_bytes, int position, const staging_side *from) {
    if (from->user == MPI_BOTTOM) {
        staging_side seen;
        int error = see_from(bytes, from, &seen);
        if (error == MPI_SUCCESS) {
            error = staging_pack_side(bytes, len_bytes, position, &seen);
            underlying.Type_free(&seen.datatype);
        }
        return error;
    }
    return underlying.Pack(from->user, from->count, from->datatype, bytes, len_bytes, &position, shim_self);
}

int staging_unpack_side(char *bytes, int len_bytes, int position, const staging_side *to) {
    if (to->user == MPI_BOTTOM) {
        staging_side seen;
        int error = see_from(bytes, to, &seen);
        if (error == MPI_SUCCESS) {
            error = staging_unpack_side(bytes, len_bytes, position, &seen);
            underlying.Type_free(&seen.datatype);
        }
        return error;
    }
    return underlying.Unpack(bytes, len_bytes, &position, to->user, to->count, to->datatype, shim_self);
}

/* MPI_Pack of this rank's elements to the dense copy. */
static int pack(const staging *through, const staging_side *from) {
    return staging_pack_side(through->bytes, through->len_bytes, through->packed_at, from);
}

/* MPI_Unpack of the dense copy, from `position` on, to elements of this rank. */
static int unpack(const staging *through, const staging_side *to, int position) {
    return staging_unpack_side(through->bytes, through->len_bytes, position, to);
}

/* Allocates the dense copy. With `keep`, makes the receiving side's datatype this library's own. */
static int allocate_copy(staging *through, bool keep, tributary_operation *operation) {
    through->bytes = malloc((size_t)through->len_bytes);
    if (through->bytes == NULL) {
        return MPI_ERR_NO_MEM;
    }
    operation->source = through->bytes + through->packed_at;
    operation->target = through->bytes;
    if (!through->unpacks || !keep) {
        return MPI_SUCCESS;
    }
    int error = underlying.Type_dup(through->to.datatype, &through->to.datatype);
    through->owns_datatype = error == MPI_SUCCESS;
    return error;
}

/* Allocates everything and fills in the cuts. */
static int allocate(staging *through, bool keep, tributary_operation *operation) {
    int error = through->needs_cuts ? load_cuts(through, operation) : MPI_SUCCESS;
    if (error == MPI_SUCCESS && through->padded_bytes > 0) {
        error = load_blocks(through);
    }
    if (error == MPI_SUCCESS && through->needed) {
        error = allocate_copy(through, keep, operation);
    }
    return error;
}

int staging_pack(const staging *through) {
    if (!through->needed) {
        return MPI_SUCCESS;
    }
    /* What pads the block is sent too. */
    memset(through->bytes + through->packed_at, 0, (size_t)through->padded_bytes);
    if (!through->packs) {
        return MPI_SUCCESS;
    }
    return pack(through, &through->from);
}

int staging_load(staging *through, bool keep, tributary_operation *operation) {
    int error = allocate(through, keep, operation);
    if (error == MPI_SUCCESS) {
        error = staging_pack(through);
    }
    if (error != MPI_SUCCESS) {
        staging_free(through);
    }
    return error;
}

int staging_keep(staging *through, tributary_operation *operation) {
    int error = allocate(through, true, operation);
    if (error == MPI_SUCCESS && through->needed && through->packs) {
        error = underlying.Type_dup(through->from.datatype, &through->from.datatype);
        through->owns_source_datatype = error == MPI_SUCCESS;
    }
    if (error != MPI_SUCCESS) {
        staging_free(through);
    }
    return error;
}

int staging_unload(staging *through) {
    if (!through->needed || !through->unpacks) {
        return MPI_SUCCESS;
    }
    if (through->blocks == NULL) {
        return unpack(through, &through->to, 0);
    }
    int error = MPI_SUCCESS;
    for (int rank = 0; rank < through->ranks && error == MPI_SUCCESS; rank++) {
        const staging_block *block = &through->blocks[rank];
        const staging_side to = {
            .user = (char *)through->to.user + block->offset_bytes,
            .count = block->count,
            .datatype = through->to.datatype,
        };
        error = block->count > 0 ? unpack(through, &to, rank * through->padded_bytes) : MPI_SUCCESS;
    }
    return error;
}

void staging_free(staging *through) {
    if (through->owns_datatype) {
        underlying.Type_free(&through->to.datatype);
        through->owns_datatype = false;
    }
    if (through->owns_source_datatype) {
        underlying.Type_free(&through->from.datatype);
        through->owns_source_datatype = false;
    }
    free(through->bytes);
    free(through->cuts);
    free(through->blocks);
    through->bytes = NULL;
    through->cuts = NULL;
    through->blocks = NULL;
}
