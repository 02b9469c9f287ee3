/*
 * The MPI's own functions. The preload library has the PMPI_ forms too, so a check that must not go through
 * it, or a measurement without it, takes them from the MPI's library itself. After this header PMPI_<name>
 * means that, for the names in the list.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <mpi.h>

#define PLAIN_FUNCTIONS(X)                                                                         \
    X(Allreduce) X(Reduce) X(Bcast) X(Barrier) X(Scan) X(Iallreduce) X(Ireduce) X(Ibcast)          \
    X(Ibarrier) X(Iexscan) X(Wait) X(Test) X(Comm_split_type) X(Waitall) X(Waitany) X(Start)

typedef struct {
#define PLAIN_MEMBER(name) __typeof__(&PMPI_##name) name;
    PLAIN_FUNCTIONS(PLAIN_MEMBER)
#undef PLAIN_MEMBER
} plain_functions;

/* Filled before main(). A function that the MPI lacks is null. */
extern plain_functions plain;

#define PMPI_Allreduce (*plain.Allreduce)
#define PMPI_Reduce (*plain.Reduce)
#define PMPI_Bcast (*plain.Bcast)
#define PMPI_Barrier (*plain.Barrier)
#define PMPI_Scan (*plain.Scan)
#define PMPI_Iallreduce (*plain.Iallreduce)
#define PMPI_Ireduce (*plain.Ireduce)
#define PMPI_Ibcast (*plain.Ibcast)
#define PMPI_Ibarrier (*plain.Ibarrier)
#define PMPI_Iexscan (*plain.Iexscan)
#define PMPI_Wait (*plain.Wait)
#define PMPI_Test (*plain.Test)
#define PMPI_Comm_split_type (*plain.Comm_split_type)

#endif
