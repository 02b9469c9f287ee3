/*
 * The functions of MPI that this library exports, each as MPI_ and as PMPI_.
 *
 * Both, because an MPI's own Fortran functions call either: Open MPI's call PMPI_, MPICH's call MPI_ for
 * most and PMPI_ for those without a buffer. MPI_Grequest_* must not be here: the shim makes generalized
 * requests itself.
 *
 * X(prefix, name, number of parameters). The types of the parameters differ between MPIs and do not
 * matter here: each is an integer or a pointer and takes one register or one eight-byte slot of the stack.
 */
#ifndef TRIBUTARY_FUNCTIONS_H
#define TRIBUTARY_FUNCTIONS_H

#define DISPATCH_FUNCTIONS(X)                                                                      \
    X(MPI, Init, 2) X(MPI, Init_thread, 4) X(MPI, Finalize, 0)                                     \
    X(MPI, Session_init, 3) X(MPI, Session_finalize, 1)                                            \
    X(MPI, Allreduce, 6) X(MPI, Reduce, 7) X(MPI, Bcast, 5) X(MPI, Barrier, 1)                     \
    X(MPI, Reduce_scatter, 6) X(MPI, Reduce_scatter_block, 6) X(MPI, Allgather, 7)                 \
    X(MPI, Allgatherv, 8) X(MPI, Scan, 6) X(MPI, Exscan, 6)                                        \
    X(MPI, Iallreduce, 7) X(MPI, Ireduce, 8) X(MPI, Ibcast, 6) X(MPI, Ibarrier, 2)                 \
    X(MPI, Ireduce_scatter, 7) X(MPI, Ireduce_scatter_block, 7) X(MPI, Iallgather, 8)              \
    X(MPI, Iallgatherv, 9) X(MPI, Iscan, 7) X(MPI, Iexscan, 7)                                     \
    X(MPI, Alltoall, 7) X(MPI, Alltoallv, 9) X(MPI, Alltoallw, 9) X(MPI, Gather, 8)                \
    X(MPI, Gatherv, 9) X(MPI, Scatter, 8) X(MPI, Scatterv, 9)                                      \
    X(MPI, Ialltoall, 8) X(MPI, Ialltoallv, 10) X(MPI, Ialltoallw, 10) X(MPI, Igather, 9)          \
    X(MPI, Igatherv, 10) X(MPI, Iscatter, 9) X(MPI, Iscatterv, 10)                                 \
    X(MPI, Allreduce_c, 6) X(MPI, Reduce_c, 7) X(MPI, Bcast_c, 5)                                  \
    X(MPI, Reduce_scatter_c, 6) X(MPI, Reduce_scatter_block_c, 6) X(MPI, Allgather_c, 7)           \
    X(MPI, Allgatherv_c, 8) X(MPI, Scan_c, 6) X(MPI, Exscan_c, 6)                                  \
    X(MPI, Iallreduce_c, 7) X(MPI, Ireduce_c, 8) X(MPI, Ibcast_c, 6)                               \
    X(MPI, Ireduce_scatter_c, 7) X(MPI, Ireduce_scatter_block_c, 7) X(MPI, Iallgather_c, 8)        \
    X(MPI, Iallgatherv_c, 9) X(MPI, Iscan_c, 7) X(MPI, Iexscan_c, 7)                               \
    X(MPI, Allreduce_init, 8) X(MPI, Reduce_init, 9) X(MPI, Bcast_init, 7) X(MPI, Barrier_init, 3) \
    X(MPI, Reduce_scatter_init, 8) X(MPI, Reduce_scatter_block_init, 8) X(MPI, Allgather_init, 9)  \
    X(MPI, Allgatherv_init, 10) X(MPI, Scan_init, 8) X(MPI, Exscan_init, 8)                        \
    X(MPI, Allreduce_init_c, 8) X(MPI, Reduce_init_c, 9) X(MPI, Bcast_init_c, 7)                   \
    X(MPI, Reduce_scatter_init_c, 8) X(MPI, Reduce_scatter_block_init_c, 8)                        \
    X(MPI, Allgather_init_c, 9) X(MPI, Allgatherv_init_c, 10) X(MPI, Scan_init_c, 8)               \
    X(MPI, Exscan_init_c, 8)                                                                       \
    X(MPIX, Allreduce_init, 8) X(MPIX, Reduce_init, 9) X(MPIX, Bcast_init, 7)                      \
    X(MPIX, Barrier_init, 3) X(MPIX, Reduce_scatter_init, 8)                                       \
    X(MPIX, Reduce_scatter_block_init, 8) X(MPIX, Allgather_init, 9) X(MPIX, Allgatherv_init, 10)  \
    X(MPIX, Scan_init, 8) X(MPIX, Exscan_init, 8) X(MPI, Start, 1) X(MPI, Startall, 2) X(MPI, Request_free, 1)           \
    X(MPI, Wait, 2) X(MPI, Waitall, 3) X(MPI, Waitany, 4) X(MPI, Waitsome, 5)                      \
    X(MPI, Test, 3) X(MPI, Testall, 4) X(MPI, Testany, 5) X(MPI, Testsome, 5)                      \
    X(MPI, Request_get_status, 3) X(MPI, Request_get_status_all, 4)                                \
    X(MPI, Request_get_status_any, 5) X(MPI, Request_get_status_some, 5)                           \
    X(MPI, Comm_dup, 2) X(MPI, Comm_dup_with_info, 3) X(MPI, Comm_split, 4)                        \
    X(MPI, Comm_split_type, 5) X(MPI, Comm_create, 3) X(MPI, Comm_create_group, 4)                 \
    X(MPI, Comm_create_from_group, 5) X(MPI, Cart_create, 6) X(MPI, Cart_sub, 3)                   \
    X(MPI, Graph_create, 6) X(MPI, Dist_graph_create, 9) X(MPI, Dist_graph_create_adjacent, 10)    \
    X(MPI, Intercomm_merge, 3) X(MPI, Comm_disconnect, 1)                                          \
    X(MPI, Op_create, 3) X(MPI, Op_create_c, 3) X(MPI, Op_free, 1) X(MPI, Type_free, 1)                                                       \
    X(MPIX, Comm_shrink, 2) X(MPIX, Comm_revoke, 1)

#endif
