/* Takes datatypes apart by what MPI tells of how they were made. */
#include "walk.h"
#include "maps.h"
#include "shim.h"

#include <limits.h>
#include <stdlib.h>

typedef struct walker {
    int64_t part_bytes;
    walk_visitor *visit;
    void *context;
} walker;

/* How a datatype was made. The program's numbers, in the order in which it gave them. */
typedef struct recipe {
    int combiner;
    int integer_count;
    int address_count;
    int datatype_count;
    int *integers;
    MPI_Aint *addresses;
    MPI_Datatype *datatypes;
} recipe;

/* Blocks of elements of one datatype, each somewhere. */
typedef struct block_list {
    int count;
    const int *lengths; /* null: all are as long as `length` */
    int length;
    const MPI_Aint *offsets; /* in bytes; null: they are `stride` apart */
    MPI_Aint stride;
    MPI_Datatype datatype;
    int64_t element_bytes;
} block_list;

static int walk_elements(const walker *with, char *address, int64_t count, MPI_Datatype datatype);

static int64_t size_of(MPI_Datatype datatype) {
    int size_bytes = MPI_UNDEFINED;
    return underlying.Type_size(datatype, &size_bytes) == MPI_SUCCESS && size_bytes != MPI_UNDEFINED ? size_bytes : -1;
}

static MPI_Aint extent_of(MPI_Datatype datatype) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    underlying.Type_get_extent(datatype, &lower, &extent);
    return extent;
}

/* Numbers that do not fit an int have no place in a recipe. */
static bool is_small(MPI_Datatype datatype) {
#if MPI_VERSION >= 4
    if (UNDERLYING_HAS(Type_get_envelope_c)) {
        MPI_Count integers = 0;
        MPI_Count addresses = 0;
        MPI_Count counts = 0;
        MPI_Count datatypes = 0;
        int combiner = MPI_COMBINER_NAMED;
        return underlying.Type_get_envelope_c(datatype, &integers, &addresses, &counts, &datatypes, &combiner) ==
                   MPI_SUCCESS &&
               counts == 0;
    }
#endif
    (void)datatype;
    return true;
}

static bool is_made(MPI_Datatype datatype) {
    int ignored[3];
    int combiner = MPI_COMBINER_NAMED;
    return maps_datatype(datatype) == NULL &&
           underlying.Type_get_envelope(datatype, &ignored[0], &ignored[1], &ignored[2], &combiner) == MPI_SUCCESS &&
           combiner != MPI_COMBINER_NAMED;
}

/* Datatypes that a recipe names and that are not predefined are the reader's to free. */
static void forget(recipe *of) {
    for (int at = 0; of->datatypes != NULL && at < of->datatype_count; at++) {
        if (is_made(of->datatypes[at])) {
            underlying.Type_free(&of->datatypes[at]);
        }
    }
    free(of->integers);
    free(of->addresses);
    free(of->datatypes);
}

/* The program may have committed none but the outermost, and MPI packs no others. */
static void commit_inner(recipe *of) {
    for (int at = 0; at < of->datatype_count; at++) {
        if (is_made(of->datatypes[at])) {
            underlying.Type_commit(&of->datatypes[at]);
        }
    }
}

/* False: the datatype is predefined, or MPI does not say how it was made, or there is no memory. */
static bool read_recipe(MPI_Datatype datatype, recipe *of) {
    *of = (recipe){.combiner = MPI_COMBINER_NAMED};
    if (!is_small(datatype) ||
        underlying.Type_get_envelope(datatype, &of->integer_count, &of->address_count, &of->datatype_count,
                                     &of->combiner) != MPI_SUCCESS ||
        of->combiner == MPI_COMBINER_NAMED) {
        return false;
    }
    of->integers = calloc((size_t)of->integer_count + 1, sizeof *of->integers);
    of->addresses = calloc((size_t)of->address_count + 1, sizeof *of->addresses);
    of->datatypes = calloc((size_t)of->datatype_count + 1, sizeof *of->datatypes);
    bool is_read = of->integers != NULL && of->addresses != NULL && of->datatypes != NULL &&
                   underlying.Type_get_contents(datatype, of->integer_count, of->address_count, of->datatype_count,
                                                of->integers, of->addresses, of->datatypes) == MPI_SUCCESS;
    if (!is_read) {
        of->datatype_count = 0;
        forget(of);
        return false;
    }
    commit_inner(of);
    return true;
}

static int length_at(const block_list *of, int block) {
    return of->lengths != NULL ? of->lengths[block] : of->length;
}

static MPI_Aint offset_at(const block_list *of, int block) {
    return of->offsets != NULL ? of->offsets[block] : of->stride * block;
}

/* Some blocks, as one element of a datatype that is made for them. */
static int visit_blocks(const walker *with, char *address, const block_list *of, int first, int end, int64_t len_bytes) {
    staging_side part = {.user = address, .count = 1};
    int count = end - first;
    int *lengths = malloc((size_t)count * sizeof *lengths);
    MPI_Aint *offsets = malloc((size_t)count * sizeof *offsets);
    int error = lengths != NULL && offsets != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int at = 0; error == MPI_SUCCESS && at < count; at++) {
        lengths[at] = length_at(of, first + at);
        offsets[at] = offset_at(of, first + at);
    }
    if (error == MPI_SUCCESS) {
        error = underlying.Type_create_hindexed(count, lengths, offsets, of->datatype, &part.datatype);
    }
    free(lengths);
    free(offsets);
    if (error != MPI_SUCCESS) {
        return error;
    }
    error = underlying.Type_commit(&part.datatype);
    if (error == MPI_SUCCESS) {
        error = with->visit(with->context, &part, len_bytes);
    }
    underlying.Type_free(&part.datatype);
    return error;
}

/* Groups of short blocks, and long blocks by their elements. */
static int walk_blocks(const walker *with, char *address, const block_list *of) {
    int error = MPI_SUCCESS;
    for (int first = 0, end = 0; error == MPI_SUCCESS && first < of->count; first = end) {
        int64_t len_bytes = length_at(of, first) * of->element_bytes;
        for (end = first + 1; end < of->count; end++) {
            int64_t longer = len_bytes + length_at(of, end) * of->element_bytes;
            if (longer > with->part_bytes) {
                break;
            }
            len_bytes = longer;
        }
        if (end == first + 1) {
            error = walk_elements(with, address + offset_at(of, first), length_at(of, first), of->datatype);
        } else if (len_bytes > 0) {
            error = visit_blocks(with, address, of, first, end, len_bytes);
        }
    }
    return error;
}

/* Offsets that count in extents, as bytes. Null: no memory. */
static MPI_Aint *offsets_in_bytes(const int *offsets, int count, MPI_Aint extent) {
    MPI_Aint *bytes = malloc((size_t)count * sizeof *bytes + 1);
    for (int at = 0; bytes != NULL && at < count; at++) {
        bytes[at] = offsets[at] * extent;
    }
    return bytes;
}

static int walk_indexed(const walker *with, char *address, block_list *of, const int *offsets) {
    MPI_Aint *bytes = offsets_in_bytes(offsets, of->count, extent_of(of->datatype));
    if (bytes == NULL) {
        return MPI_ERR_NO_MEM;
    }
    of->offsets = bytes;
    int error = walk_blocks(with, address, of);
    free(bytes);
    return error;
}

static int walk_struct(const walker *with, char *address, const recipe *of) {
    int error = MPI_SUCCESS;
    for (int block = 0; error == MPI_SUCCESS && block < of->integers[0]; block++) {
        error = walk_elements(with, address + of->addresses[block], of->integers[1 + block], of->datatypes[block]);
    }
    return error;
}

/* One element, by what it is made of. */
static int walk_recipe(const walker *with, char *address, const recipe *of, bool *is_known) {
    const int *integers = of->integers;
    MPI_Datatype inner = of->datatypes[0];
    block_list blocks = {.count = integers[0], .datatype = inner, .element_bytes = size_of(inner)};
    *is_known = true;
    switch (of->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        return walk_elements(with, address, 1, inner);
    case MPI_COMBINER_CONTIGUOUS:
        return walk_elements(with, address, integers[0], inner);
    case MPI_COMBINER_VECTOR:
        blocks.length = integers[1];
        blocks.stride = integers[2] * extent_of(inner);
        return walk_blocks(with, address, &blocks);
    case MPI_COMBINER_HVECTOR:
        blocks.length = integers[1];
        blocks.stride = of->addresses[0];
        return walk_blocks(with, address, &blocks);
    case MPI_COMBINER_INDEXED:
        blocks.lengths = integers + 1;
        return walk_indexed(with, address, &blocks, integers + 1 + blocks.count);
    case MPI_COMBINER_INDEXED_BLOCK:
        blocks.length = integers[1];
        return walk_indexed(with, address, &blocks, integers + 2);
    case MPI_COMBINER_HINDEXED:
        blocks.lengths = integers + 1;
        blocks.offsets = of->addresses;
        return walk_blocks(with, address, &blocks);
    case MPI_COMBINER_HINDEXED_BLOCK:
        blocks.length = integers[1];
        blocks.offsets = of->addresses;
        return walk_blocks(with, address, &blocks);
    case MPI_COMBINER_STRUCT:
        return walk_struct(with, address, of);
    default:
        *is_known = false;
        return MPI_SUCCESS;
    }
}

static int visit_whole(const walker *with, char *address, int64_t count, MPI_Datatype datatype, int64_t len_bytes) {
    staging_side part = {.user = address, .count = (int)count, .datatype = datatype};
    return with->visit(with->context, &part, len_bytes);
}

/* One element that is longer than a part. */
static int walk_one(const walker *with, char *address, MPI_Datatype datatype, int64_t size_bytes) {
    recipe of;
    bool is_known = false;
    int error = MPI_SUCCESS;
    if (read_recipe(datatype, &of)) {
        error = walk_recipe(with, address, &of, &is_known);
        forget(&of);
    }
    return is_known ? error : visit_whole(with, address, 1, datatype, size_bytes);
}

static int walk_elements(const walker *with, char *address, int64_t count, MPI_Datatype datatype) {
    int64_t size_bytes = size_of(datatype);
    if (size_bytes < 0) {
        return MPI_ERR_TYPE;
    }
    if (size_bytes == 0 || count == 0) {
        return MPI_SUCCESS;
    }
    MPI_Aint extent = extent_of(datatype);
    int64_t at_a_time = with->part_bytes / size_bytes;
    int error = MPI_SUCCESS;
    for (int64_t first = 0; error == MPI_SUCCESS && first < count; first += at_a_time > 0 ? at_a_time : 1) {
        char *place = address + first * extent;
        int64_t left = count - first;
        int64_t some = left < at_a_time ? left : at_a_time;
        error = at_a_time > 0 ? visit_whole(with, place, some, datatype, some * size_bytes)
                              : walk_one(with, place, datatype, size_bytes);
    }
    return error;
}

int walk(const staging_side *elements, int64_t part_bytes, walk_visitor *visit, void *context) {
    walker with = {part_bytes, visit, context};
    return walk_elements(&with, elements->user, elements->count, elements->datatype);
}
