#include "shapes.h"

#include "check.h"

static shape named(const char *name, MPI_Comm comm) {
    shape made = {name, comm, -1, 0};
    if (comm != MPI_COMM_NULL) {
        PMPI_Comm_rank(comm, &made.rank);
        PMPI_Comm_size(comm, &made.size);
    }
    return made;
}

static MPI_Comm duplicate(void) {
    MPI_Comm made;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    return made;
}

static MPI_Comm duplicate_nonblocking(void) {
    MPI_Comm made;
    MPI_Request request;
    MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return made;
}

static MPI_Comm split(int color, int key) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &made);
    return made;
}

/* All ranks but the last; with one rank, that one. */
static MPI_Comm create(void) {
    MPI_Comm made;
    MPI_Group all;
    MPI_Group most;
    int range[1][3] = {{0, world.ranks > 1 ? world.ranks - 2 : 0, 1}};
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_range_incl(all, 1, range, &most);
    MPI_Comm_create(MPI_COMM_WORLD, most, &made);
    MPI_Group_free(&most);
    MPI_Group_free(&all);
    return made;
}

/* The upper half of the ranks, backwards; only they call MPI_Comm_create_group. */
static MPI_Comm create_group(void) {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group all;
    MPI_Group upper;
    int first = world.ranks / 2;
    int range[1][3] = {{world.ranks - 1, first, -1}};
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_range_incl(all, 1, range, &upper);
    if (world.rank >= first) {
        MPI_Comm_create_group(MPI_COMM_WORLD, upper, 77, &made);
    }
    MPI_Group_free(&upper);
    MPI_Group_free(&all);
    return made;
}

static MPI_Comm split_type(void) {
    MPI_Comm made;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -world.rank, MPI_INFO_NULL, &made);
    return made;
}

void shapes_make(shape shapes[SHAPES]) {
    check_case("making communicators");
    shapes[0] = named("world", MPI_COMM_WORLD);
    shapes[1] = named("dup", duplicate());
    shapes[2] = named("even/odd", split(world.rank % 2, world.rank));
    shapes[3] = named("reversed", split(0, -world.rank));
    shapes[4] = named("create", create());
    shapes[5] = named("create_group", create_group());
    shapes[6] = named("self", MPI_COMM_SELF);
    shapes[7] = named("idup", duplicate_nonblocking());
    shapes[8] = named("split_type", split_type());
}

void shapes_free(shape shapes[SHAPES]) {
    for (int at = 0; at < SHAPES; at++) {
        MPI_Comm comm = shapes[at].comm;
        if (comm != MPI_COMM_NULL && comm != MPI_COMM_WORLD && comm != MPI_COMM_SELF) {
            MPI_Comm_free(&shapes[at].comm);
        }
    }
}
