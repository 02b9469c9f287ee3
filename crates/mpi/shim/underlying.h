/*
 * The underlying MPI: functions and handles of the MPI library that the program uses.
 *
 * Every symbol is looked up at run time, in the library that the dispatcher has found. So this library has
 * no undefined MPI symbol, and can be preloaded into processes that use no MPI (mpirun, a shell). The rest
 * of the shim calls PMPI_ functions through `underlying` only.
 */
#ifndef TRIBUTARY_UNDERLYING_H
#define TRIBUTARY_UNDERLYING_H

#include "stand_ins.h"

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
/* Which of the three interfaces this is: OPEN_MPI, or MPICH's, or the standard one of MPI 5. */
#if defined(MPI_ABI)
#define SHIM_IS_STANDARD 1
#elif !defined(OPEN_MPI)
#define SHIM_IS_MPICH 1
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* MPI 3.0 has them. Without one of them this library leaves every call to the MPI. */
#define UNDERLYING_FUNCTIONS_BASE(X)                                                               \
    X(Init) X(Init_thread) X(Query_thread) X(Finalize) X(Abort) X(Get_library_version)             \
    X(Allreduce) X(Reduce) X(Barrier) X(Bcast)                                                     \
    X(Iallreduce) X(Ireduce) X(Ibarrier) X(Ibcast)                                                 \
    X(Reduce_scatter) X(Reduce_scatter_block) X(Scan) X(Exscan)                                    \
    X(Ireduce_scatter) X(Ireduce_scatter_block) X(Iallgather) X(Iallgatherv) X(Iscan) X(Iexscan)   \
    X(Wait) X(Waitall) X(Waitany) X(Waitsome)                                                      \
    X(Test) X(Testall) X(Testany) X(Testsome) X(Request_get_status) X(Request_free)                \
    X(Send) X(Irecv) X(Cancel) X(Start) X(Startall)                                                \
    X(Comm_dup) X(Comm_dup_with_info) X(Comm_split) X(Comm_split_type)                             \
    X(Comm_create) X(Comm_create_group)                                                            \
    X(Cart_create) X(Cart_sub) X(Graph_create)                                                     \
    X(Dist_graph_create) X(Dist_graph_create_adjacent) X(Intercomm_merge)                          \
    X(Comm_rank) X(Comm_size) X(Comm_test_inter) X(Comm_free) X(Comm_disconnect)                   \
    X(Comm_group) X(Comm_remote_group) X(Group_translate_ranks) X(Group_size) X(Group_free)        \
    X(Comm_create_keyval) X(Comm_free_keyval) X(Comm_set_attr) X(Comm_get_attr)                    \
    X(Comm_delete_attr)                                                                            \
    X(Info_get) X(Comm_call_errhandler) X(Comm_get_errhandler) X(Comm_set_errhandler) X(Errhandler_free)       \
    X(Add_error_class) X(Add_error_code) X(Add_error_string)                                       \
    X(Allgather) X(Allgatherv) X(Gather) X(Gatherv) X(Iprobe)                                      \
    X(Alltoall) X(Alltoallv) X(Alltoallw) X(Scatter) X(Scatterv) X(Igather) X(Igatherv)            \
    X(Ialltoall) X(Ialltoallv) X(Ialltoallw) X(Iscatter) X(Iscatterv)                              \
    X(Type_get_envelope) X(Type_get_contents)                                                      \
    X(Type_size) X(Type_get_extent) X(Type_dup) X(Type_free) X(Type_create_hindexed)               \
    X(Type_commit) X(Pack) X(Unpack)                                                               \
    X(Grequest_start) X(Grequest_complete)                                                         \
    X(Status_set_elements) X(Status_set_cancelled)

/*
 * Later versions of MPI, and extensions, have the functions from here on. The MPI at hand may lack them:
 * ask UNDERLYING_HAS before a call that the program has not made.
 */
#define UNDERLYING_FUNCTIONS_SESSIONS(X)                                                           \
    X(Session_init) X(Session_finalize) X(Group_from_session_pset) X(Comm_create_from_group)

/* The persistent collectives; in Open MPI 4.1 they begin with MPIX_, and those stand in. */
#define UNDERLYING_FUNCTIONS_PERSISTENT(X)                                                         \
    X(Allreduce_init) X(Reduce_init) X(Bcast_init) X(Barrier_init)                                 \
    X(Reduce_scatter_init) X(Reduce_scatter_block_init) X(Allgather_init) X(Allgatherv_init)       \
    X(Scan_init) X(Exscan_init)

/* MPI 2.2 has them. Without MPI_Reduce_local, operators of the program are left to the MPI. */
#define UNDERLYING_FUNCTIONS_OPERATORS(X)                                                          \
    X(Op_create) X(Op_free) X(Reduce_local) X(Type_get_true_extent)

/* These have stand-ins: they can always be called. */
#define UNDERLYING_FUNCTIONS_NEWER(X)                                                              \
    X(Allreduce_c) X(Reduce_c) X(Bcast_c) X(Iallreduce_c) X(Ireduce_c) X(Ibcast_c)                 \
    X(Reduce_scatter_c) X(Reduce_scatter_block_c) X(Allgather_c) X(Allgatherv_c)                   \
    X(Scan_c) X(Exscan_c) X(Ireduce_scatter_c) X(Ireduce_scatter_block_c)                          \
    X(Iallgather_c) X(Iallgatherv_c) X(Iscan_c) X(Iexscan_c)                                       \
    X(Allreduce_init_c) X(Reduce_init_c) X(Bcast_init_c)                                           \
    X(Reduce_scatter_init_c) X(Reduce_scatter_block_init_c) X(Allgather_init_c)                    \
    X(Allgatherv_init_c) X(Scan_init_c) X(Exscan_init_c)                                                                \
    X(Request_get_status_all) X(Request_get_status_any) X(Request_get_status_some) X(Op_create_c)

#if MPI_VERSION >= 4
#define UNDERLYING_FUNCTIONS_TYPE(X) X(Type_get_envelope_c) X(Type_get_contents_c)
#else
#define UNDERLYING_FUNCTIONS_TYPE(X)
#endif

#define UNDERLYING_FUNCTIONS(X)                                                                    \
    UNDERLYING_FUNCTIONS_BASE(X) UNDERLYING_FUNCTIONS_SESSIONS(X) UNDERLYING_FUNCTIONS_OPERATORS(X) \
    UNDERLYING_FUNCTIONS_TYPE(X)

/*
 * Extensions (MPIX_): User Level Failure Mitigation. MPICH declares MPIX_Comm_revoke too, but its ch4
 * device, the default, ends the process in it, so it is not interposed there.
 */
#if defined(OPEN_MPI) && defined(OMPI_HAVE_MPI_EXT_FTMPI)
#define UNDERLYING_HAS_REVOCATION 1
#define UNDERLYING_EXTENSIONS_FAULTS(X)                                                            \
    X(Comm_shrink) X(Comm_revoke) X(Comm_is_revoked) X(Comm_get_failed)
#else
#define UNDERLYING_HAS_REVOCATION 0
#ifdef SHIM_IS_MPICH
#define UNDERLYING_EXTENSIONS_FAULTS(X) X(Comm_shrink)
#else
#define UNDERLYING_EXTENSIONS_FAULTS(X)
#endif
#endif

#ifdef OPEN_MPI
/* The header of Open MPI 5 no longer declares them; their parameters are those of the standard's. */
#define UNDERLYING_DECLARE(name) extern __typeof__(PMPI_##name) MPIX_##name, PMPIX_##name;
UNDERLYING_FUNCTIONS_PERSISTENT(UNDERLYING_DECLARE)
#undef UNDERLYING_DECLARE
#define UNDERLYING_EXTENSIONS(X)                                                                   \
    UNDERLYING_EXTENSIONS_FAULTS(X) UNDERLYING_FUNCTIONS_PERSISTENT(X)
#else
#define UNDERLYING_EXTENSIONS(X) UNDERLYING_EXTENSIONS_FAULTS(X)
#endif

/* One pointer for each function, named as in MPI but without MPI; so extensions begin with X_. */
typedef struct underlying_functions {
#define UNDERLYING_MEMBER(name) __typeof__(&PMPI_##name) name;
    UNDERLYING_FUNCTIONS(UNDERLYING_MEMBER)
    UNDERLYING_FUNCTIONS_NEWER(UNDERLYING_MEMBER)
    UNDERLYING_FUNCTIONS_PERSISTENT(UNDERLYING_MEMBER)
#undef UNDERLYING_MEMBER
#define UNDERLYING_MEMBER(name) __typeof__(&PMPIX_##name) X_##name;
    UNDERLYING_EXTENSIONS(UNDERLYING_MEMBER)
#undef UNDERLYING_MEMBER
} underlying_functions;

extern underlying_functions underlying __attribute__((visibility("hidden")));

/* What stands for a function that the MPI at hand lacks: says so, and raises an error of MPI. */
int underlying_missing(void) __attribute__((visibility("hidden")));

/* Whether the MPI at hand has the function underlying.<name>. */
#define UNDERLYING_HAS(name) ((int (*)(void))underlying.name != underlying_missing)

#ifdef OPEN_MPI
/*
 * Open MPI's handles are addresses of its global objects. Its header defines each by
 * OMPI_PREDEFINED_GLOBAL(type, object); redefining that macro makes every MPI_* handle of the header a
 * lookup in this table. Using a handle that is not in this list does not compile.
 */
#define UNDERLYING_HANDLES_BASE(X)                                                                 \
    X(ompi_mpi_comm_world) X(ompi_mpi_comm_self) X(ompi_mpi_comm_null)                             \
    X(ompi_mpi_errors_return) X(ompi_mpi_errhandler_null) X(ompi_request_null) X(ompi_mpi_info_null)\
    X(ompi_mpi_datatype_null) X(ompi_mpi_op_null) X(ompi_mpi_byte) X(ompi_mpi_char) X(ompi_mpi_int)
/* One that the MPI at hand lacks stays null, and its datatype or operator is left to the MPI. */
#define UNDERLYING_HANDLES_OPTIONAL(X)                                                             \
    X(ompi_mpi_op_max) X(ompi_mpi_op_min) X(ompi_mpi_op_sum) X(ompi_mpi_op_prod)                   \
    X(ompi_mpi_op_land) X(ompi_mpi_op_band) X(ompi_mpi_op_lor) X(ompi_mpi_op_bor)                  \
    X(ompi_mpi_op_lxor) X(ompi_mpi_op_bxor) X(ompi_mpi_op_maxloc) X(ompi_mpi_op_minloc)            \
    X(ompi_mpi_packed) X(ompi_mpi_wchar) X(ompi_mpi_instance_null)                                                           \
    X(ompi_mpi_short) X(ompi_mpi_long) X(ompi_mpi_long_long_int)                                   \
    X(ompi_mpi_signed_char) X(ompi_mpi_unsigned_char) X(ompi_mpi_unsigned_short)                   \
    X(ompi_mpi_unsigned) X(ompi_mpi_unsigned_long) X(ompi_mpi_unsigned_long_long)                  \
    X(ompi_mpi_float) X(ompi_mpi_double) X(ompi_mpi_long_double)                                   \
    X(ompi_mpi_float_int) X(ompi_mpi_double_int) X(ompi_mpi_long_int) X(ompi_mpi_short_int)        \
    X(ompi_mpi_2int)                                                                               \
    X(ompi_mpi_int8_t) X(ompi_mpi_int16_t) X(ompi_mpi_int32_t) X(ompi_mpi_int64_t)                 \
    X(ompi_mpi_uint8_t) X(ompi_mpi_uint16_t) X(ompi_mpi_uint32_t) X(ompi_mpi_uint64_t)             \
    X(ompi_mpi_aint) X(ompi_mpi_offset) X(ompi_mpi_count)                                          \
    X(ompi_mpi_c_bool) X(ompi_mpi_cxx_bool)                                                        \
    X(ompi_mpi_c_float_complex) X(ompi_mpi_c_double_complex) X(ompi_mpi_c_long_double_complex)     \
    X(ompi_mpi_character) X(ompi_mpi_integer) X(ompi_mpi_real) X(ompi_mpi_dblprec)                 \
    X(ompi_mpi_logical) X(ompi_mpi_cplex) X(ompi_mpi_dblcplex) X(ompi_mpi_2integer)                \
    X(ompi_mpi_2real) X(ompi_mpi_2dblprec) X(ompi_mpi_longdbl_int)                                 \
    X(ompi_mpi_integer16) X(ompi_mpi_real16)                                                       \
    X(ompi_mpi_complex8) X(ompi_mpi_complex16) X(ompi_mpi_complex32)                               \
    X(ompi_mpi_cxx_cplex) X(ompi_mpi_cxx_dblcplex) X(ompi_mpi_cxx_ldblcplex)                       \
    X(ompi_mpi_logical1) X(ompi_mpi_logical2) X(ompi_mpi_logical4) X(ompi_mpi_logical8)            \
    X(ompi_mpi_integer1) X(ompi_mpi_integer2) X(ompi_mpi_integer4) X(ompi_mpi_integer8)            \
    X(ompi_mpi_real2) X(ompi_mpi_real4) X(ompi_mpi_real8)
#define UNDERLYING_HANDLES(X) UNDERLYING_HANDLES_BASE(X) UNDERLYING_HANDLES_OPTIONAL(X)

typedef struct underlying_handle_table {
#define UNDERLYING_MEMBER(object) void *object;
    UNDERLYING_HANDLES(UNDERLYING_MEMBER)
#undef UNDERLYING_MEMBER
} underlying_handle_table;

extern underlying_handle_table underlying_handles __attribute__((visibility("hidden")));

#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, object) ((type)underlying_handles.object)
#endif

/* Looks up every symbol in `library`, a handle of dlopen(). */
void underlying_open(void *library) __attribute__((visibility("hidden")));

/* A symbol of the underlying MPI, or of a library that it needs; null if there is none. */
void *underlying_find(const char *name) __attribute__((visibility("hidden")));

/*
 * True if the underlying MPI is one that this shim knows, and has all that this library needs; else writes
 * why not.
 */
bool underlying_is_expected_library(char *why_not, size_t why_not_bytes);

#ifdef SHIM_IS_MPICH
/*
 * Whether the underlying MPI is MPICH itself, of this version or a later one. False for other MPIs with
 * its ABI: their versions do not tell which MPICH they are made from.
 */
bool underlying_is_mpich_since(int major, int minor);
#endif

#endif
