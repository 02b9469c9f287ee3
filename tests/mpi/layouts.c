#include "layouts.h"

static int contiguous_position(int index, int ints) { return (void)ints, index; }
static int strided_position(int index, int ints) { return (void)ints, index * LAYOUTS_SPREAD; }
static int paired_position(int index, int ints) { return (void)ints, index / 2 * 4 + index % 2; }
static int swapped_position(int index, int ints) { return (index + ints / 2) % ints; }

static MPI_Datatype vector_of(int blocks, int block_length, int stride) {
    MPI_Datatype type;
    MPI_Type_vector(blocks, block_length, stride, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* One int, with an extent of LAYOUTS_SPREAD ints. */
static MPI_Datatype resized(void) {
    MPI_Datatype type;
    MPI_Type_create_resized(MPI_INT, 0, LAYOUTS_SPREAD * (MPI_Aint)sizeof(int), &type);
    MPI_Type_commit(&type);
    return type;
}

/* The second half first: the signature is the same, the order in memory is not. */
static MPI_Datatype swapped_halves(int ints) {
    MPI_Datatype type;
    int blocks[2] = {ints / 2, ints / 2};
    int offsets[2] = {ints / 2, 0};
    MPI_Type_indexed(2, blocks, offsets, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

layout layout_make(int which, int ints) {
    MPI_Datatype type = MPI_INT;
    switch (which) {
    case 0:
        return (layout){"MPI_INT", MPI_INT, ints, contiguous_position};
    case 1:
        MPI_Type_contiguous(ints, MPI_INT, &type);
        MPI_Type_commit(&type);
        return (layout){"one contiguous", type, 1, contiguous_position};
    case 2:
        return (layout){"one vector", vector_of(ints, 1, LAYOUTS_SPREAD), 1, strided_position};
    case 3:
        return (layout){"resized ints", resized(), ints, strided_position};
    case 4:
        return (layout){"vector of pairs", vector_of(ints / 2, 2, 4), 1, paired_position};
    default:
        return (layout){"swapped halves", swapped_halves(ints), 1, swapped_position};
    }
}

void layout_free(layout *made) {
    if (made->type != MPI_INT) {
        MPI_Type_free(&made->type);
    }
}
