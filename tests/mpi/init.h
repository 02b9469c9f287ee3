/* INIT(Allreduce) is the function that makes a persistent one: in Open MPI 4.1 it begins with MPIX_. */
#ifndef INIT_H
#define INIT_H

#include <mpi.h>

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

#endif
