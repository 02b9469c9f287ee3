/* The stand-ins: forms with MPI_Count by those with int, and the Request_get_status family. */
#include "stand_ins.h"
#include "shim.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* This MPI has no function for so many elements. */
static int refuse(MPI_Comm comm) {
    underlying.Comm_call_errhandler(comm, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
}

#define NARROW(name, older, count, parameters, arguments)                                          \
    STAND_IN(name, parameters) {                                                                   \
        return (count) <= INT_MAX ? underlying.older arguments : refuse(comm);                     \
    }

#define REDUCTION const void *source, void *target, MPI_Count count, MPI_Datatype datatype, MPI_Op op
#define REDUCTION_ARGUMENTS source, target, (int)count, datatype, op

NARROW(Allreduce_c, Allreduce, count, (REDUCTION, MPI_Comm comm), (REDUCTION_ARGUMENTS, comm))
NARROW(Reduce_c, Reduce, count, (REDUCTION, int root, MPI_Comm comm),
       (REDUCTION_ARGUMENTS, root, comm))
NARROW(Reduce_scatter_block_c, Reduce_scatter_block, count, (REDUCTION, MPI_Comm comm),
       (REDUCTION_ARGUMENTS, comm))
NARROW(Scan_c, Scan, count, (REDUCTION, MPI_Comm comm), (REDUCTION_ARGUMENTS, comm))
NARROW(Exscan_c, Exscan, count, (REDUCTION, MPI_Comm comm), (REDUCTION_ARGUMENTS, comm))
NARROW(Iallreduce_c, Iallreduce, count, (REDUCTION, MPI_Comm comm, MPI_Request *request),
       (REDUCTION_ARGUMENTS, comm, request))
NARROW(Ireduce_c, Ireduce, count, (REDUCTION, int root, MPI_Comm comm, MPI_Request *request),
       (REDUCTION_ARGUMENTS, root, comm, request))
NARROW(Ireduce_scatter_block_c, Ireduce_scatter_block, count,
       (REDUCTION, MPI_Comm comm, MPI_Request *request), (REDUCTION_ARGUMENTS, comm, request))
NARROW(Iscan_c, Iscan, count, (REDUCTION, MPI_Comm comm, MPI_Request *request),
       (REDUCTION_ARGUMENTS, comm, request))
NARROW(Iexscan_c, Iexscan, count, (REDUCTION, MPI_Comm comm, MPI_Request *request),
       (REDUCTION_ARGUMENTS, comm, request))

NARROW(Bcast_c, Bcast, count,
       (void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm),
       (buffer, (int)count, datatype, root, comm))
NARROW(Ibcast_c, Ibcast, count,
       (void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
        MPI_Request *request),
       (buffer, (int)count, datatype, root, comm, request))

#define PERSISTENT MPI_Comm comm, MPI_Info info, MPI_Request *request
#define PERSISTENT_ARGUMENTS comm, info, request

NARROW(Allreduce_init_c, Allreduce_init, count, (REDUCTION, PERSISTENT),
       (REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
NARROW(Reduce_init_c, Reduce_init, count, (REDUCTION, int root, PERSISTENT),
       (REDUCTION_ARGUMENTS, root, PERSISTENT_ARGUMENTS))
NARROW(Reduce_scatter_block_init_c, Reduce_scatter_block_init, count, (REDUCTION, PERSISTENT),
       (REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
NARROW(Scan_init_c, Scan_init, count, (REDUCTION, PERSISTENT),
       (REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
NARROW(Exscan_init_c, Exscan_init, count, (REDUCTION, PERSISTENT),
       (REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
NARROW(Bcast_init_c, Bcast_init, count,
       (void *buffer, MPI_Count count, MPI_Datatype datatype, int root, PERSISTENT),
       (buffer, (int)count, datatype, root, PERSISTENT_ARGUMENTS))

#define GATHER                                                                                     \
    const void *source, MPI_Count sent, MPI_Datatype sent_type, void *target, MPI_Count received,  \
        MPI_Datatype received_type, MPI_Comm comm
#define GATHER_ARGUMENTS source, (int)sent, sent_type, target, (int)received, received_type, comm

/* MPI ignores `sent` where the operation is in place. */
static MPI_Count largest(const void *source, MPI_Count sent, MPI_Count received) {
    return source != MPI_IN_PLACE && sent > received ? sent : received;
}

NARROW(Allgather_c, Allgather, largest(source, sent, received), (GATHER), (GATHER_ARGUMENTS))
NARROW(Iallgather_c, Iallgather, largest(source, sent, received), (GATHER, MPI_Request *request),
       (GATHER_ARGUMENTS, request))
NARROW(Allgather_init_c, Allgather_init, largest(source, sent, received),
       (GATHER, MPI_Info info, MPI_Request *request), (GATHER_ARGUMENTS, info, request))

/*
 * Counts and displacements of blocks as int. The MPI may read them until a nonblocking operation is over, and
 * nobody tells us when; so they are kept. A program uses few different ones.
 */
typedef struct kept_numbers {
    struct kept_numbers *next;
    int ranks;
    int numbers[];
} kept_numbers;

/* Numbers of either kind for each rank; the other is null. */
typedef struct wide_numbers {
    const MPI_Count *counts;
    const MPI_Aint *displacements;
} wide_numbers;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static kept_numbers *kept;

static int64_t number_at(wide_numbers wide, int rank) {
    return wide.counts != NULL ? (int64_t)wide.counts[rank] : (int64_t)wide.displacements[rank];
}

static bool are_numbers(const int *narrow, wide_numbers wide, int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
        if (narrow[rank] != number_at(wide, rank)) {
            return false;
        }
    }
    return true;
}

static kept_numbers *find_numbers(wide_numbers wide, int ranks) {
    for (kept_numbers *entry = kept; entry != NULL; entry = entry->next) {
        if (entry->ranks == ranks && are_numbers(entry->numbers, wide, ranks)) {
            return entry;
        }
    }
    return NULL;
}

static kept_numbers *new_numbers(wide_numbers wide, int ranks) {
    kept_numbers *entry = malloc(sizeof *entry + sizeof *entry->numbers * (size_t)ranks);
    if (entry == NULL) {
        return NULL;
    }
    entry->ranks = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        entry->numbers[rank] = (int)number_at(wide, rank);
    }
    entry->next = kept;
    kept = entry;
    return entry;
}

/* The numbers as int. Null, with the error raised: one is too large, or there is no memory. */
static const int *narrowed(wide_numbers wide, MPI_Comm comm, int *error) {
    int ranks = 0;
    *error = underlying.Comm_size(comm, &ranks);
    for (int rank = 0; *error == MPI_SUCCESS && rank < ranks; rank++) {
        int64_t number = number_at(wide, rank);
        if (number > INT_MAX || number < INT_MIN) {
            *error = refuse(comm);
        }
    }
    if (*error != MPI_SUCCESS) {
        return NULL;
    }
    pthread_mutex_lock(&keeping);
    kept_numbers *entry = find_numbers(wide, ranks);
    entry = entry != NULL ? entry : new_numbers(wide, ranks);
    pthread_mutex_unlock(&keeping);
    if (entry == NULL) {
        *error = MPI_ERR_NO_MEM;
        underlying.Comm_call_errhandler(comm, *error);
        return NULL;
    }
    return entry->numbers;
}

void stand_ins_close(void) {
    while (kept != NULL) {
        kept_numbers *next = kept->next;
        free(kept);
        kept = next;
    }
}

#define SCATTER                                                                                    \
    const void *source, void *target, const MPI_Count counts[], MPI_Datatype datatype, MPI_Op op,  \
        MPI_Comm comm

STAND_IN(Reduce_scatter_c, (SCATTER)) {
    int error = MPI_SUCCESS;
    const int *narrow = narrowed((wide_numbers){.counts = counts}, comm, &error);
    return narrow != NULL ? underlying.Reduce_scatter(source, target, narrow, datatype, op, comm)
                          : error;
}

STAND_IN(Ireduce_scatter_c, (SCATTER, MPI_Request *request)) {
    int error = MPI_SUCCESS;
    const int *narrow = narrowed((wide_numbers){.counts = counts}, comm, &error);
    return narrow != NULL
               ? underlying.Ireduce_scatter(source, target, narrow, datatype, op, comm, request)
               : error;
}

STAND_IN(Reduce_scatter_init_c, (SCATTER, MPI_Info info, MPI_Request *request)) {
    int error = MPI_SUCCESS;
    const int *narrow = narrowed((wide_numbers){.counts = counts}, comm, &error);
    return narrow != NULL ? underlying.Reduce_scatter_init(source, target, narrow, datatype, op, comm,
                                                           info, request)
                          : error;
}

/* The counts and displacements of an allgatherv as int. False, with the error raised, as above. */
static bool narrow_blocks(MPI_Count sent, const MPI_Count *counts, const MPI_Aint *displacements,
                          MPI_Comm comm, const int **narrow, const int **places, int *error) {
    if (sent > INT_MAX) {
        *error = refuse(comm);
        return false;
    }
    *narrow = narrowed((wide_numbers){.counts = counts}, comm, error);
    if (*narrow == NULL) {
        return false;
    }
    *places = narrowed((wide_numbers){.displacements = displacements}, comm, error);
    return *places != NULL;
}

/* `further` are the parameters behind the communicator; the lists come without their parentheses. */
#define NARROW_BLOCKS(name, older, further, further_arguments)                                     \
    STAND_IN(name, (const void *source, MPI_Count sent, MPI_Datatype sent_type, void *target,      \
                    const MPI_Count counts[], const MPI_Aint displacements[],                      \
                    MPI_Datatype received_type, MPI_Comm comm further)) {                          \
        int error = MPI_SUCCESS;                                                                   \
        const int *narrow = NULL;                                                                  \
        const int *places = NULL;                                                                  \
        MPI_Count read = source != MPI_IN_PLACE ? sent : 0;                                        \
        return narrow_blocks(read, counts, displacements, comm, &narrow, &places, &error)          \
                   ? underlying.older(source, (int)read, sent_type, target, narrow, places,        \
                                      received_type, comm further_arguments)                       \
                   : error;                                                                        \
    }
#define WITH(...) , __VA_ARGS__

NARROW_BLOCKS(Allgatherv_c, Allgatherv, , )
NARROW_BLOCKS(Iallgatherv_c, Iallgatherv, WITH(MPI_Request *request), WITH(request))
NARROW_BLOCKS(Allgatherv_init_c, Allgatherv_init, WITH(MPI_Info info, MPI_Request *request),
              WITH(info, request))

#ifdef OPEN_MPI
/* Open MPI 4.1 has the persistent collectives as extensions. */
#define BY_EXTENSION(name, parameters, arguments)                                                  \
    STAND_IN(name, parameters) {                                                                   \
        return underlying.X_##name arguments;                                                      \
    }

#define INT_REDUCTION const void *source, void *target, int count, MPI_Datatype datatype, MPI_Op op
#define INT_REDUCTION_ARGUMENTS source, target, count, datatype, op

BY_EXTENSION(Allreduce_init, (INT_REDUCTION, PERSISTENT),
             (INT_REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Reduce_init, (INT_REDUCTION, int root, PERSISTENT),
             (INT_REDUCTION_ARGUMENTS, root, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Reduce_scatter_block_init, (INT_REDUCTION, PERSISTENT),
             (INT_REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Scan_init, (INT_REDUCTION, PERSISTENT),
             (INT_REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Exscan_init, (INT_REDUCTION, PERSISTENT),
             (INT_REDUCTION_ARGUMENTS, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Bcast_init, (void *buffer, int count, MPI_Datatype datatype, int root, PERSISTENT),
             (buffer, count, datatype, root, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Barrier_init, (PERSISTENT), (PERSISTENT_ARGUMENTS))
BY_EXTENSION(Reduce_scatter_init,
             (const void *source, void *target, const int counts[], MPI_Datatype datatype, MPI_Op op,
              PERSISTENT),
             (source, target, counts, datatype, op, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Allgather_init,
             (const void *source, int sent, MPI_Datatype sent_type, void *target, int received,
              MPI_Datatype received_type, PERSISTENT),
             (source, sent, sent_type, target, received, received_type, PERSISTENT_ARGUMENTS))
BY_EXTENSION(Allgatherv_init,
             (const void *source, int sent, MPI_Datatype sent_type, void *target, const int counts[],
              const int displacements[], MPI_Datatype received_type, PERSISTENT),
             (source, sent, sent_type, target, counts, displacements, received_type,
              PERSISTENT_ARGUMENTS))
#endif

/*
 * MPI_Request_get_status_all, _any and _some (MPI 4.1 section 3.7.5), by MPI_Request_get_status. No function
 * tells an inactive persistent request from a complete one, so it counts as complete.
 */
static MPI_Status *status_at(MPI_Status statuses[], int at) {
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[at];
}

STAND_IN(Request_get_status_all,
         (int count, const MPI_Request requests[], int *flag, MPI_Status statuses[])) {
    *flag = 1;
    int error = MPI_SUCCESS;
    for (int at = 0; at < count && *flag && error == MPI_SUCCESS; at++) {
        error = underlying.Request_get_status(requests[at], flag, status_at(statuses, at));
    }
    return error;
}

STAND_IN(Request_get_status_any,
         (int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status)) {
    bool any_active = false;
    int error = MPI_SUCCESS;
    *index = MPI_UNDEFINED;
    *flag = 0;
    for (int at = 0; at < count && !*flag && error == MPI_SUCCESS; at++) {
        if (requests[at] != MPI_REQUEST_NULL) {
            any_active = true;
            error = underlying.Request_get_status(requests[at], flag, status);
            *index = *flag ? at : MPI_UNDEFINED;
        }
    }
    if (!any_active) {
        error = underlying.Request_get_status(MPI_REQUEST_NULL, flag, status); /* an empty status */
    }
    return error;
}

STAND_IN(Request_get_status_some,
         (int count, const MPI_Request requests[], int *completed, int indices[],
          MPI_Status statuses[])) {
    bool any_active = false;
    int error = MPI_SUCCESS;
    *completed = 0;
    for (int at = 0; at < count && error == MPI_SUCCESS; at++) {
        int flag = 0;
        if (requests[at] != MPI_REQUEST_NULL) {
            any_active = true;
            error = underlying.Request_get_status(requests[at], &flag,
                                                  status_at(statuses, *completed));
        }
        if (flag) {
            indices[(*completed)++] = at;
        }
    }
    if (!any_active) {
        *completed = MPI_UNDEFINED;
    }
    return error;
}
