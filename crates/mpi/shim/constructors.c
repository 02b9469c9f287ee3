/*
 * Calls that make communicators. Each is collective over the members of the new one, so setting it up
 * here, which is collective too, can't block a correct program. MPI_Comm_idup is not here: its
 * communicator does not exist yet when the call returns. MPI_Comm_create_from_group is in sessions.c.
 */
#include "communicators.h"
#include "shim.h"

/*
 * Defines MPI_<name>: calls the underlying MPI, then sets up the communicator that it made. `sums` is where the program says
 * how its reductions add floats.
 */
#define CONSTRUCTOR(name, label, parameters, arguments, made, sums)                                \
    INTERPOSE(name, parameters) {                                                                  \
        int error = underlying.name arguments;                                                     \
        if (error == MPI_SUCCESS) {                                                                \
            communicators_add(*(made), label, sums);                                               \
        }                                                                                          \
        return error;                                                                              \
    }

CONSTRUCTOR(Comm_dup, "dup", (MPI_Comm comm, MPI_Comm *made), (comm, made), made,
            communicators_sums_of(comm))

CONSTRUCTOR(Comm_dup_with_info, "dup", (MPI_Comm comm, MPI_Info info, MPI_Comm *made),
            (comm, info, made), made, communicators_sums_in(info))

CONSTRUCTOR(Comm_split, "split", (MPI_Comm comm, int color, int key, MPI_Comm *made),
            (comm, color, key, made), made, SUMS_AS_SET)

CONSTRUCTOR(Comm_split_type, "split_type",
            (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
            (comm, type, key, info, made), made, communicators_sums_in(info))

CONSTRUCTOR(Comm_create, "create", (MPI_Comm comm, MPI_Group group, MPI_Comm *made),
            (comm, group, made), made, SUMS_AS_SET)

CONSTRUCTOR(Comm_create_group, "create_group",
            (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made), (comm, group, tag, made),
            made, SUMS_AS_SET)

CONSTRUCTOR(Cart_create, "cart",
            (MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder,
             MPI_Comm *made),
            (comm, ndims, dims, periods, reorder, made), made, SUMS_AS_SET)

CONSTRUCTOR(Cart_sub, "cart_sub", (MPI_Comm comm, const int remain[], MPI_Comm *made),
            (comm, remain, made), made, SUMS_AS_SET)

CONSTRUCTOR(Graph_create, "graph",
            (MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
             MPI_Comm *made),
            (comm, nodes, index, edges, reorder, made), made, SUMS_AS_SET)

CONSTRUCTOR(Dist_graph_create, "dist_graph",
            (MPI_Comm comm, int n, const int nodes[], const int degrees[], const int targets[],
             const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
            (comm, n, nodes, degrees, targets, weights, info, reorder, made), made,
            communicators_sums_in(info))

CONSTRUCTOR(Dist_graph_create_adjacent, "dist_graph",
            (MPI_Comm comm, int indegree, const int sources[], const int sourceweights[],
             int outdegree, const int destinations[], const int destweights[], MPI_Info info,
             int reorder, MPI_Comm *made),
            (comm, indegree, sources, sourceweights, outdegree, destinations, destweights, info,
             reorder, made),
            made, communicators_sums_in(info))

#ifndef SHIM_IS_STANDARD /* which has no such function */
/* Makes a communicator of the ranks that are left, which all know of the same failures on return. */
INTERPOSE_EXTENSION(Comm_shrink, (MPI_Comm comm, MPI_Comm *made)) {
    int error = underlying.X_Comm_shrink(comm, made);
    if (error == MPI_SUCCESS) {
        communicators_add(*made, "shrink", communicators_sums_of(comm));
    }
    return error;
}
#endif

INTERPOSE(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made)) {
    int error = underlying.Intercomm_merge(comm, high, made);
    if (error == MPI_SUCCESS) {
        communicators_add_merged(*made, "merge");
    }
    return error;
}
