/*
 * Collectives that stay with the underlying MPI. The report counts them, so that a reader knows what the library's own counts
 * are a part of, and times the blocking ones where it tells times.
 */
#include "report.h"
#include "shim.h"
#include "timing.h"

static __attribute__((noinline, cold)) void count(uint32_t collective, int error, uint64_t started_ns) {
    if (error == MPI_SUCCESS) {
        tributary_count_other(collective, started_ns == 0 ? 0 : timing_now_ns() - started_ns);
    }
}

#define COUNTED(name, number, parameters, arguments)                                               \
    INTERPOSE(name, parameters) {                                                                  \
        if (!report_counts_others) {                                                               \
            return underlying.name arguments;                                                      \
        }                                                                                          \
        uint64_t started_ns = timing_is_on ? timing_now_ns() : 0;                                  \
        int error = underlying.name arguments;                                                     \
        count(number, error, started_ns);                                                          \
        return error;                                                                              \
    }

/* The time between the start and the end of a nonblocking one is mostly the program's own. */
#define COUNTED_ALONE(name, number, parameters, arguments)                                         \
    INTERPOSE(name, parameters) {                                                                  \
        int error = underlying.name arguments;                                                     \
        if (report_counts_others) {                                                                \
            count(number, error, 0);                                                               \
        }                                                                                          \
        return error;                                                                              \
    }

#define EVEN                                                                                       \
    (const void *send, int sent, MPI_Datatype send_type, void *receive, int received,              \
     MPI_Datatype receive_type, MPI_Comm comm)
#define EVEN_GIVEN (send, sent, send_type, receive, received, receive_type, comm)
#define ROOTED                                                                                     \
    (const void *send, int sent, MPI_Datatype send_type, void *receive, int received,              \
     MPI_Datatype receive_type, int root, MPI_Comm comm)
#define ROOTED_GIVEN (send, sent, send_type, receive, received, receive_type, root, comm)
#define GATHERED                                                                                   \
    (const void *send, int sent, MPI_Datatype send_type, void *receive, const int received[],      \
     const int places[], MPI_Datatype receive_type, int root, MPI_Comm comm)
#define GATHERED_GIVEN (send, sent, send_type, receive, received, places, receive_type, root, comm)
#define SCATTERED                                                                                  \
    (const void *send, const int sent[], const int places[], MPI_Datatype send_type, void *receive, \
     int received, MPI_Datatype receive_type, int root, MPI_Comm comm)
#define SCATTERED_GIVEN (send, sent, places, send_type, receive, received, receive_type, root, comm)
#define UNEVEN                                                                                     \
    (const void *send, const int sent[], const int send_places[], MPI_Datatype send_type,          \
     void *receive, const int received[], const int receive_places[], MPI_Datatype receive_type,   \
     MPI_Comm comm)
#define UNEVEN_GIVEN                                                                               \
    (send, sent, send_places, send_type, receive, received, receive_places, receive_type, comm)
#define MIXED                                                                                      \
    (const void *send, const int sent[], const int send_places[], const MPI_Datatype send_types[], \
     void *receive, const int received[], const int receive_places[],                              \
     const MPI_Datatype receive_types[], MPI_Comm comm)
#define MIXED_GIVEN                                                                                \
    (send, sent, send_places, send_types, receive, received, receive_places, receive_types, comm)

COUNTED(Alltoall, TRIBUTARY_ALLTOALL, EVEN, EVEN_GIVEN)
COUNTED(Alltoallv, TRIBUTARY_ALLTOALLV, UNEVEN, UNEVEN_GIVEN)
COUNTED(Alltoallw, TRIBUTARY_ALLTOALLW, MIXED, MIXED_GIVEN)
COUNTED(Gather, TRIBUTARY_GATHER, ROOTED, ROOTED_GIVEN)
COUNTED(Gatherv, TRIBUTARY_GATHERV, GATHERED, GATHERED_GIVEN)
COUNTED(Scatter, TRIBUTARY_SCATTER, ROOTED, ROOTED_GIVEN)
COUNTED(Scatterv, TRIBUTARY_SCATTERV, SCATTERED, SCATTERED_GIVEN)

/* The same parameters, and a request behind them. */
#define STARTED(list) STARTED_OF list
#define STARTED_OF(...) (__VA_ARGS__, MPI_Request *request)
#define STARTED_GIVEN(list) STARTED_GIVEN_OF list
#define STARTED_GIVEN_OF(...) (__VA_ARGS__, request)

COUNTED_ALONE(Ialltoall, TRIBUTARY_ALLTOALL, STARTED(EVEN), STARTED_GIVEN(EVEN_GIVEN))
COUNTED_ALONE(Ialltoallv, TRIBUTARY_ALLTOALLV, STARTED(UNEVEN), STARTED_GIVEN(UNEVEN_GIVEN))
COUNTED_ALONE(Ialltoallw, TRIBUTARY_ALLTOALLW, STARTED(MIXED), STARTED_GIVEN(MIXED_GIVEN))
COUNTED_ALONE(Igather, TRIBUTARY_GATHER, STARTED(ROOTED), STARTED_GIVEN(ROOTED_GIVEN))
COUNTED_ALONE(Igatherv, TRIBUTARY_GATHERV, STARTED(GATHERED), STARTED_GIVEN(GATHERED_GIVEN))
COUNTED_ALONE(Iscatter, TRIBUTARY_SCATTER, STARTED(ROOTED), STARTED_GIVEN(ROOTED_GIVEN))
COUNTED_ALONE(Iscatterv, TRIBUTARY_SCATTERV, STARTED(SCATTERED), STARTED_GIVEN(SCATTERED_GIVEN))
