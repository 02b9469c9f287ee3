/* The collectives that are offloaded inside one host only, blocking and nonblocking. */
#include "blocking.h"
#include "offload.h"
#include "pending.h"
#include "shim.h"

/*
 * Every form exists with int and with MPI_Count. `parameters` and `arguments` are the function's;
 * `decision` fills `operation` and `through`.
 */
#define BLOCKING(name, parameters, arguments, decision)                                            \
    INTERPOSE(name, parameters, arguments) {                                                       \
        tributary_operation operation;                                                             \
        staging through = {.needed = false};                                                       \
        comm_record *record = decision(OFFLOAD_BLOCKING);                                          \
        return record != NULL ? run_through(record, &operation, &through)                          \
                              : underlying.name arguments;                                         \
    }

#define NONBLOCKING(name, parameters, arguments, decision)                                         \
    INTERPOSE(name, parameters, arguments) {                                                       \
        tributary_operation operation;                                                             \
        staging through = {.needed = false};                                                       \
        comm_record *record = decision(OFFLOAD_NONBLOCKING);                                       \
        return record != NULL ? pending_start(record, &operation, &through, request)               \
                              : underlying.name arguments;                                         \
    }

/* The blocking and the nonblocking form. The lists come without their parentheses. */
#define COLLECTIVE(name, iname, parameters, arguments, decision)                                   \
    BLOCKING(name, (parameters), (arguments), decision)                                            \
    NONBLOCKING(iname, (parameters, MPI_Request * request), (arguments, request), decision)

#define LIST(...) __VA_ARGS__

#define SMALL_COUNTS ((count_array){.small = recvcounts})
#define LARGE_COUNTS ((count_array){.large = recvcounts})

#define DECIDE_SCATTER(mode)                                                                       \
    offload_reduce_scatter(sendbuf, recvbuf, SMALL_COUNTS, datatype, op, comm, mode, &operation,   \
                           &through)
#define DECIDE_SCATTER_LARGE(mode)                                                                 \
    offload_reduce_scatter(sendbuf, recvbuf, LARGE_COUNTS, datatype, op, comm, mode, &operation,   \
                           &through)
#define DECIDE_SCATTER_BLOCK(mode)                                                                 \
    offload_reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, mode, &operation)
#define DECIDE_SCAN(mode)                                                                          \
    offload_scan(TRIBUTARY_SCAN, sendbuf, recvbuf, count, datatype, op, comm, mode, &operation)
#define DECIDE_EXSCAN(mode)                                                                        \
    offload_scan(TRIBUTARY_EXSCAN, sendbuf, recvbuf, count, datatype, op, comm, mode, &operation)
#define DECIDE_GATHER(mode)                                                                        \
    offload_allgather(sendbuf, (gather_side){sendcount, sendtype}, recvbuf,                        \
                      (gather_side){recvcount, recvtype}, comm, mode, &operation, &through)

#define REDUCE_SCATTER(name, iname, count_type, decision)                                          \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, const count_type recvcounts[],             \
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),                              \
               LIST(sendbuf, recvbuf, recvcounts, datatype, op, comm), decision)

#define REDUCE_SCATTER_BLOCK(name, iname, count_type)                                              \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, count_type recvcount,                      \
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),                              \
               LIST(sendbuf, recvbuf, recvcount, datatype, op, comm), DECIDE_SCATTER_BLOCK)

#define SCAN(name, iname, count_type, decision)                                                    \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,   \
                    MPI_Op op, MPI_Comm comm),                                                     \
               LIST(sendbuf, recvbuf, count, datatype, op, comm), decision)

#define ALLGATHER(name, iname, count_type)                                                         \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, count_type sendcount, MPI_Datatype sendtype,              \
                    void *recvbuf, count_type recvcount, MPI_Datatype recvtype, MPI_Comm comm),    \
               LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),             \
               DECIDE_GATHER)

REDUCE_SCATTER(Reduce_scatter, Ireduce_scatter, int, DECIDE_SCATTER)
REDUCE_SCATTER_BLOCK(Reduce_scatter_block, Ireduce_scatter_block, int)
SCAN(Scan, Iscan, int, DECIDE_SCAN)
SCAN(Exscan, Iexscan, int, DECIDE_EXSCAN)
ALLGATHER(Allgather, Iallgather, int)

#if MPI_VERSION >= 4
REDUCE_SCATTER(Reduce_scatter_c, Ireduce_scatter_c, MPI_Count, DECIDE_SCATTER_LARGE)
REDUCE_SCATTER_BLOCK(Reduce_scatter_block_c, Ireduce_scatter_block_c, MPI_Count)
SCAN(Scan_c, Iscan_c, MPI_Count, DECIDE_SCAN)
SCAN(Exscan_c, Iexscan_c, MPI_Count, DECIDE_EXSCAN)
ALLGATHER(Allgather_c, Iallgather_c, MPI_Count)
#endif
