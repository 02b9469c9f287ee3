/*
 * Functions of MPI that stand in where the MPI at hand lacks them.
 *
 * A program that looks a function up at run time, or asks whether a weak symbol has an address, finds this
 * library's, and takes it for the MPI's; mpi4py does so. A stand-in does what the function should, by older
 * functions. What has none is answered by underlying_missing().
 */
#ifndef TRIBUTARY_STAND_INS_H
#define TRIBUTARY_STAND_INS_H

#include "dispatch.h"

#include <mpi.h>

/* Defines the stand-in of MPI_<name>, which may call older functions of the MPI only. */
#define STAND_IN(name, parameters)                                                                 \
    static int stand_in_##name parameters;                                                         \
    DISPATCH_LISTED(SHIM_SECTION(stand_ins, SHIM_INTERFACE))                                       \
    static const dispatch_entry stand_in_entry_##name = {                                          \
        .number = DISPATCH_MPI_##name,                                                             \
        .function = (dispatch_function)stand_in_##name,                                            \
    };                                                                                             \
    static int stand_in_##name parameters

#if MPI_VERSION < 4
typedef void MPI_User_function_c(void *, void *, MPI_Count *, MPI_Datatype *);
int PMPI_Op_create_c(MPI_User_function_c *, int, MPI_Op *);
/* MPI 4.0 has them. Open MPI's mpi.h, up to version 5, does not declare them. */
int PMPI_Allreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Reduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);
int PMPI_Bcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
int PMPI_Reduce_scatter_c(const void *, void *, const MPI_Count[], MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Reduce_scatter_block_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm);
int PMPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[], const MPI_Aint[],
                      MPI_Datatype, MPI_Comm);
int PMPI_Scan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Exscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
int PMPI_Iallreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
int PMPI_Ibcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *);
int PMPI_Ireduce_scatter_c(const void *, void *, const MPI_Count[], MPI_Datatype, MPI_Op, MPI_Comm,
                           MPI_Request *);
int PMPI_Ireduce_scatter_block_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
                                 MPI_Request *);
int PMPI_Iallgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm,
                      MPI_Request *);
int PMPI_Iallgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[], const MPI_Aint[],
                       MPI_Datatype, MPI_Comm, MPI_Request *);
int PMPI_Iscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Iexscan_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
int PMPI_Allreduce_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
                          MPI_Request *);
int PMPI_Reduce_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Info,
                       MPI_Request *);
int PMPI_Bcast_init_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_init_c(const void *, void *, const MPI_Count[], MPI_Datatype, MPI_Op, MPI_Comm,
                               MPI_Info, MPI_Request *);
int PMPI_Reduce_scatter_block_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
                                     MPI_Info, MPI_Request *);
int PMPI_Allgather_init_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm,
                          MPI_Info, MPI_Request *);
int PMPI_Allgatherv_init_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                           const MPI_Aint[], MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int PMPI_Scan_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
                     MPI_Request *);
int PMPI_Exscan_init_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
                       MPI_Request *);
#endif

#if MPI_VERSION < 4 || (MPI_VERSION == 4 && MPI_SUBVERSION < 1)
/* MPI 4.1 has them. */
int PMPI_Request_get_status_all(int, const MPI_Request[], int *, MPI_Status[]);
int PMPI_Request_get_status_any(int, const MPI_Request[], int *, int *, MPI_Status *);
int PMPI_Request_get_status_some(int, const MPI_Request[], int *, int[], MPI_Status[]);
#endif

/* Frees what stand-ins have kept for the MPI. Called once, when no operation is outstanding. */
void stand_ins_close(void);

#endif
