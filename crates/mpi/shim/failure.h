/* Errors of offloaded operations, as MPI errors. */
#ifndef TRIBUTARY_FAILURE_H
#define TRIBUTARY_FAILURE_H

#include "beneath.h"

/* Room for the core's one-line messages; MPI_MAX_ERROR_STRING is at least 256 in both MPIs. */
#define FAILURE_MESSAGE_BYTES 240

/* Adds the error class. Once, after MPI is initialised. */
void failure_open(void);

/* An MPI error code whose string is `message`. Thread-safe. */
int failure_code(const char *message);

/* Calls the communicator's error handler; returns the code if that returns. */
int failure_raise(MPI_Comm comm, const char *message);

#endif
