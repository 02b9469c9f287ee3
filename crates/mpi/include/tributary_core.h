/*
 * What the MPI shim asks of the Rust core: open a context, set communicators up, run operations,
 * count the calls that go to the underlying MPI, and report.
 *
 * The core knows nothing of MPI. Before it has links of its own it reaches the other ranks through
 * the bootstrap that the caller passes. Its progress thread never calls MPI.
 *
 * Pointers: a pointer is not null, and what it points to is valid until the function returns, unless a
 * comment says otherwise. A tributary_communicator came from tributary_communicator_new(), a
 * tributary_request from tributary_start(), and neither was freed.
 *
 * Messages: a function that fails keeps one line for the calling thread; tributary_message() gives it.
 *
 * The numbers of datatypes and operators are those of the frame header (docs/wire.md). A test of
 * the Rust side compares each of them with this file.
 */
#ifndef TRIBUTARY_CORE_H
#define TRIBUTARY_CORE_H

#include <stddef.h>
#include <stdint.h>

#define TRIBUTARY_I8 1
#define TRIBUTARY_I16 2
#define TRIBUTARY_I32 3
#define TRIBUTARY_I64 4
#define TRIBUTARY_U8 5
#define TRIBUTARY_U16 6
#define TRIBUTARY_U32 7
#define TRIBUTARY_U64 8
#define TRIBUTARY_F16 9
#define TRIBUTARY_BF16 10
#define TRIBUTARY_F32 11
#define TRIBUTARY_F64 12
#define TRIBUTARY_I16_INDEX 13
#define TRIBUTARY_I32_INDEX 14
#define TRIBUTARY_I64_INDEX 15
#define TRIBUTARY_F32_INDEX 16
#define TRIBUTARY_F64_INDEX 17
#define TRIBUTARY_F32_COMPLEX 18
#define TRIBUTARY_F64_COMPLEX 19
#define TRIBUTARY_F32_FLOAT_INDEX 20
#define TRIBUTARY_F64_FLOAT_INDEX 21

#define TRIBUTARY_SUM 1
#define TRIBUTARY_PRODUCT 2
#define TRIBUTARY_MIN 3
#define TRIBUTARY_MAX 4
#define TRIBUTARY_MINLOC 5
#define TRIBUTARY_MAXLOC 6
#define TRIBUTARY_BIT_AND 7
#define TRIBUTARY_BIT_OR 8
#define TRIBUTARY_BIT_XOR 9
#define TRIBUTARY_LOGICAL_AND 10
#define TRIBUTARY_LOGICAL_OR 11
#define TRIBUTARY_LOGICAL_XOR 12
#define TRIBUTARY_BARRIER_OPERATOR 13
#define TRIBUTARY_BROADCAST_OPERATOR 14

/* Collectives that can be offloaded. */
#define TRIBUTARY_ALLREDUCE 0
#define TRIBUTARY_REDUCE 1
#define TRIBUTARY_BARRIER 2
#define TRIBUTARY_BROADCAST 3
#define TRIBUTARY_REDUCE_SCATTER 4
#define TRIBUTARY_ALLGATHER 5
#define TRIBUTARY_SCAN 6
#define TRIBUTARY_EXSCAN 7
#define TRIBUTARY_COLLECTIVES 8

/* Collectives that are always the underlying MPI's. */
#define TRIBUTARY_ALLTOALL 0
#define TRIBUTARY_ALLTOALLV 1
#define TRIBUTARY_ALLTOALLW 2
#define TRIBUTARY_GATHER 3
#define TRIBUTARY_GATHERV 4
#define TRIBUTARY_SCATTER 5
#define TRIBUTARY_SCATTERV 6

/* Why an operation went to the underlying MPI. */
#define TRIBUTARY_PASS_USER_OPERATOR 0     /* an operator made by MPI_Op_create, or an RMA one */
#define TRIBUTARY_PASS_DATATYPE 1          /* derived, or one no aggregation node knows */
#define TRIBUTARY_PASS_COMBINATION 2       /* MPI doesn't define this operator on this datatype */
#define TRIBUTARY_PASS_INTERCOMMUNICATOR 3 /* two groups */
#define TRIBUTARY_PASS_NOT_SET_UP 4        /* made by a call that couldn't set it up */
#define TRIBUTARY_PASS_UNAVAILABLE 5       /* the core refused it; the report gives its message */
#define TRIBUTARY_PASS_EMPTY 6             /* no elements: nothing to do */
#define TRIBUTARY_PASS_TOO_LONG 7          /* 2 GiB or more, which MPI_Pack can't count */
#define TRIBUTARY_PASS_ARGUMENTS 8         /* MPI may refuse them, and then raises its own error */
#define TRIBUTARY_PASS_REVOKED 9           /* the program has revoked the communicator */
#define TRIBUTARY_PASS_SLOWER 10           /* so long that the underlying MPI was measured to be faster */
#define TRIBUTARY_PASS_GAPS 11             /* derived datatype with gaps, in a reduction */
/* An operator that only MPI can call (tributary_combiner): */
#define TRIBUTARY_PASS_COMBINER_NONBLOCKING 12 /* in a nonblocking call, on a long vector */
#define TRIBUTARY_PASS_COMBINER_HOSTS 13       /* between hosts, where it cannot go, on a long vector */
#define TRIBUTARY_PASS_LONG_ELEMENT 14         /* on elements that are too long */
#define TRIBUTARY_PASS_MISSING 15              /* not all members have this library */
#define TRIBUTARY_PASS_SELDOM 16               /* not used often enough to be set up */
/* Memory that a processor may not touch: */
#define TRIBUTARY_PASS_DEVICE 17             /* some rank's buffer is memory of a device */
#define TRIBUTARY_PASS_DEVICE_NONBLOCKING 18 /* it may be, in a nonblocking call */
#define TRIBUTARY_PASS_ROUNDING 19 /* a reduction between hosts, whose ranks round otherwise, or not alike */
#define TRIBUTARY_PASS_REASONS 20

/* What became of an operation. */
#define TRIBUTARY_PENDING 0
#define TRIBUTARY_DONE 1
#define TRIBUTARY_FAILED (-1)   /* tributary_message() says why */
#define TRIBUTARY_GIVEN_UP (-2) /* some rank gave the communicator up */

/* An operator and a datatype in one number. */
#define TRIBUTARY_PAIR_DATATYPES 32
#define TRIBUTARY_PAIR(operator_, datatype) ((operator_) * TRIBUTARY_PAIR_DATATYPES + (datatype))

/* How the core reaches all ranks of one communicator before it has links of its own. */
typedef struct tributary_bootstrap {
    uint32_t rank;
    uint32_t size;
    /*
     * Gathers every rank's `mine` (`len_bytes` on each) in rank order into `all`, which has room
     * for `size * len_bytes`. Collective. Returns 0, or nonzero when the channel failed.
     */
    int (*allgather)(void *context, const void *mine, void *all, size_t len_bytes);
    void *context;
} tributary_bootstrap;

/*
 * A thread whose blocking operation waits long calls it now and then, so that the underlying MPI can
 * progress its own messages. Any thread may be the one that waits. A result other than 0 gives the
 * communicator up. Must not call the core on the communicator that waits.
 */
typedef struct tributary_progress_hook {
    int (*call)(void *context);
    void *context; /* valid until the communicator is freed */
} tributary_progress_hook;

/*
 * An operator that only the caller can call, on elements of a size of its own. Operands come in rank
 * order, those of several hosts if their ranks are in order or the operator commutes.
 *
 * `combine` reads `elements` elements at `left` and as many at `right`, at most INT_MAX, and replaces
 * those at `right` by `left` OP `right`. Both are aligned as malloc() aligns memory, as far as the size of
 * an element allows. It may be called any number of times on parts of the vector, and must not call the core
 * on the communicator that it is called for. Only a thread that is in tributary_run(), tributary_test(),
 * tributary_prepared_test() or tributary_prepared_wait() calls it. A result other than 0 does not end the
 * operation, for other ranks wait for it; tributary_run() returns the first one, and with the others the
 * operation has failed.
 *
 * An operation that is started, and one that tributary_communicator_combines() forbids, gathers all vectors
 * first, and then calls `combine` in rank order.
 */
typedef struct tributary_combiner {
    int (*combine)(void *const context[2], const void *left, void *right, uint64_t elements);
    void *context[2]; /* two words, so that the caller needs no memory for them */
    uint32_t element_bytes;
    uint32_t commutes; /* operands may change places, if not 0 */
} tributary_combiner;

/*
 * One collective operation. The buffers and `cuts` are valid, and nobody else uses them, until the
 * operation is over: when tributary_run() returns, or tributary_test() returns something else than
 * TRIBUTARY_PENDING. `source` and `target` are equal or do not overlap.
 */
typedef struct tributary_operation {
    uint32_t collective; /* TRIBUTARY_ALLREDUCE ... */
    uint32_t root;       /* of a reduce or broadcast; else 0 */
    uint32_t datatype;   /* TRIBUTARY_I8 ...; a broadcast or allgather moves TRIBUTARY_U8 */
    uint32_t operator_;  /* TRIBUTARY_SUM ...; barrier, broadcast and allgather have their own */
    uint64_t elements;   /* in one rank's contribution; of a reduce-scatter, in all blocks */
    /* Equal to `target` when in place, for an allgather to the rank's own part of it; null for a
     * barrier. */
    const void *source;
    void *target; /* null at a reduce's ranks other than the root */
    /*
     * For a reduce-scatter whose blocks differ in length: the first element of each rank's block, and
     * behind them the end of the last block. Else null.
     */
    const uint64_t *cuts;
    /*
     * How the elements of a reduction combine, instead of `datatype` and `operator_`; the same at all
     * ranks but for the context. `combine` is null if they say it.
     */
    tributary_combiner combiner;
} tributary_operation;

typedef struct tributary_communicator tributary_communicator;
typedef struct tributary_request tributary_request;
typedef struct tributary_prepared tributary_prepared;

/* What comes of opening the context, or of setting a communicator up. */
enum {
    TRIBUTARY_JOINED = 0,
    TRIBUTARY_UNAVAILABLE = 1, /* with a message: it goes without */
    TRIBUTARY_UNMET = 2,       /* with a message: the job must have it (TRIBUTARY_REQUIRE), and ends */
};

/*
 * Opens the process's context. Collective over the ranks of `world`, and the outcome is the same
 * on all. After TRIBUTARY_UNAVAILABLE every later join is refused with the same message.
 */
int tributary_open(const tributary_bootstrap *world);

/*
 * Writes the message of this thread's last failure, terminated and cut at `bytes`. Writes nothing if
 * `bytes` is 0.
 */
void tributary_message(char *text, size_t bytes);

/*
 * Promises, before tributary_open(), that no two threads of this process are ever in calls on one
 * communicator or on its requests at a time: MPI below MPI_THREAD_MULTIPLE. Blocking operations
 * then take no lock.
 */
void tributary_take_turns(void);

/*
 * Frees the context, and forgets what was counted: a process that opens another one reports that one's alone.
 * Not collective.
 */
void tributary_close(void);

/*
 * Registers a communicator for counting. Local; never fails. `counted` is nonzero on the one rank
 * that counts for the communicator. `label` says how it was made: a terminated string, which is copied. `sums` says how
 * its reductions add floats, in a word of TRIBUTARY_SUMS; null or empty if that does. Rank 0's counts.
 */
tributary_communicator *tributary_communicator_new(const char *label, uint32_t size, int counted,
                                                   const char *sums);

/*
 * The blocking collective at which a communicator that was just created is to be set up: 0 if that is now. The same at all
 * members, over which it is collective.
 */
uint32_t tributary_communicator_joins_after(const tributary_bootstrap *members);

/*
 * Sets the communicator up for offloading. Collective, and the outcome is the same on all ranks. Where it can't be offloaded,
 * the report gives the reason, too. At most once per communicator.
 */
int tributary_communicator_join(tributary_communicator *communicator,
                                const tributary_bootstrap *members,
                                const tributary_progress_hook *progress_hook);

/*
 * The longest contribution, in bytes, with which `collective` is offloaded on a communicator that was
 * joined; the same on all ranks. 0 if it can't be offloaded.
 */
uint64_t tributary_communicator_longest(const tributary_communicator *communicator,
                                        uint32_t collective);

/*
 * The longest elements, in bytes, that a combiner may have on a communicator that was joined; the same on
 * all ranks. 0 if none can be called: the hosts have no direct links, or, for one that does not commute
 * (`commutes` is 0), their ranks are out of order.
 */
uint64_t tributary_communicator_combines(const tributary_communicator *communicator, int commutes);

/*
 * The longest contribution, in bytes, of an operation with a combiner that is started, or that
 * tributary_communicator_combines() forbids; the same on all ranks.
 */
uint64_t tributary_communicator_gathers(const tributary_communicator *communicator);

/* 1 if all ranks of a communicator that was joined are on one host, else 0. */
int tributary_communicator_is_on_one_host(const tributary_communicator *communicator);

/*
 * Gives the communicator up at all its ranks: operations that wait on it, and all later ones, end with
 * TRIBUTARY_GIVEN_UP. Not collective. Waits while another thread is in a blocking operation on it; the
 * progress hook has to end that operation.
 */
void tributary_communicator_give_up(tributary_communicator *communicator);

/* Frees the communicator, once its outstanding requests are done. Not collective. */
void tributary_communicator_free(tributary_communicator *communicator);

/*
 * Runs one operation to its end and counts it. Returns 0, TRIBUTARY_FAILED with a message,
 * TRIBUTARY_GIVEN_UP, or what the combiner returned.
 */
int tributary_run(tributary_communicator *communicator, const tributary_operation *operation);

/* The same for another piece of an operation that was counted with its first one. */
int tributary_run_on(tributary_communicator *communicator, const tributary_operation *operation);

/*
 * The fast path: the same with arguments in registers, as the fields of tributary_operation, and
 * `pair` a TRIBUTARY_PAIR. It has the least overhead for short operations if
 * tributary_communicator_is_on_one_host(). On other communicators it works too, and is no faster.
 */
int tributary_allreduce(const tributary_communicator *communicator, uint32_t pair,
                        uint64_t elements, const void *source, void *target);
int tributary_reduce(const tributary_communicator *communicator, uint32_t pair, uint64_t elements,
                     uint32_t root, const void *source, void *target);
int tributary_broadcast(const tributary_communicator *communicator, uint64_t len_bytes,
                        uint32_t root, void *buffer);
int tributary_barrier(const tributary_communicator *communicator);

/*
 * Starts one operation and counts it. Returns null with a message if it could not start. `operation`
 * itself is copied.
 */
tributary_request *tributary_start(tributary_communicator *communicator,
                                   const tributary_operation *operation);

/*
 * Drives an operation. Returns TRIBUTARY_PENDING, TRIBUTARY_DONE, TRIBUTARY_FAILED with a message, or
 * TRIBUTARY_GIVEN_UP.
 */
int tributary_test(tributary_request *request);

/* Frees a request that is done or has failed. */
void tributary_request_free(tributary_request *request);

/*
 * Prepares an operation that is to be started many times, one start after the other. Returns null with a
 * message if it is none. `operation` itself is copied; its cuts are valid until
 * tributary_prepared_free(). Not collective.
 */
tributary_prepared *tributary_prepare(tributary_communicator *communicator,
                                      const tributary_operation *operation);

/*
 * Starts it once more and counts it; the last start is over. Returns 0. How it ends, the next three
 * functions tell: the first of them that returns something else than TRIBUTARY_PENDING ends the start.
 */
int tributary_prepared_start(const tributary_prepared *prepared);

/* Drives it. Returns as tributary_test(). */
int tributary_prepared_test(const tributary_prepared *prepared);

/*
 * Waits for it, if ranks of this host alone take part and nothing that was started earlier is outstanding;
 * else, or if other threads may come on the communicator meanwhile and it takes long, returns
 * TRIBUTARY_PENDING. Returns as tributary_test().
 */
int tributary_prepared_wait(const tributary_prepared *prepared);

/*
 * The request of the start that is under way, for tributary_test() and tributary_rest() until it is over.
 * It belongs to `prepared`: do not free it.
 */
tributary_request *tributary_prepared_request(tributary_prepared *prepared);

/* Frees it; its last start is over. */
void tributary_prepared_free(tributary_prepared *prepared);

/*
 * Pauses for a moment, in a wait for `request` and for what only the caller can poll between two calls.
 * If there are fewer cores than ranks it soon sleeps, for 50 us at most. `request` is null if there is
 * none to drive; `is_first` is not 0 in a wait's first call.
 */
void tributary_rest(const tributary_request *request, int is_first);

/* Counts one operation that goes to the underlying MPI, for one of TRIBUTARY_PASS_*. */
void tributary_count_passed(tributary_communicator *communicator, uint32_t collective,
                            uint32_t reason);

/*
 * 1 when the environment wants the report to tell how long blocking operations take, else 0. Then call
 * tributary_times_begin() once, when MPI is initialised, and one of the three functions below it for each
 * operation. All of them are thread-safe, and take a time that the caller has measured.
 */
int tributary_times_wanted(void);
void tributary_times_begin(void);

/* Forgets what was measured, once it is reported. */
void tributary_times_end(void);

/* A communicator without a number for times. */
#define TRIBUTARY_TIMES_NONE UINT32_MAX

/*
 * The number of a communicator whose `count` members have these ranks in the world, or TRIBUTARY_TIMES_NONE
 * if there are too many. The times of some of its operations are compared between its ranks.
 */
uint32_t tributary_times_communicator(const uint32_t *members, size_t count);

/*
 * Adds the time of an operation that tributary_run(), or a function of the fast path, has run. `number` is the
 * communicator's, or TRIBUTARY_TIMES_NONE.
 */
void tributary_count_time(const tributary_communicator *communicator, uint32_t number,
                          const tributary_operation *operation, uint64_t duration_ns);

/* Adds the time of an operation in the underlying MPI, to which this rank has contributed `len_bytes`. */
void tributary_count_time_passed(uint32_t number, uint32_t collective, uint64_t len_bytes,
                                 uint64_t duration_ns);

/* Counts one of the collectives that are always the underlying MPI's, and its time, which is 0 if nobody measures it. */
void tributary_count_other(uint32_t collective, uint64_t duration_ns);

/* Counts an operation that is not measured: a nonblocking one. */
void tributary_count_not_measured(uint32_t collective);

/*
 * This process's counts and times as JSON text, not terminated; `*len_bytes` is its length. Free it with
 * tributary_report_free(), with both values.
 */
char *tributary_report(size_t *len_bytes);
void tributary_report_free(char *text, size_t len_bytes);

/* 1 when the environment asks for a report, else 0. */
int tributary_report_wanted(void);

/*
 * Adds up the counts of `ranks` processes and writes them where the environment says. `texts`
 * holds the texts of tributary_report() one behind the other, `len_bytes` the length of each.
 * Returns 0, or 1 with a message.
 */
int tributary_report_publish(const char *texts, const size_t *len_bytes, size_t ranks);

/* A communicator that has no place in the trace. */
#define TRIBUTARY_TRACE_NONE UINT32_MAX

/*
 * 1 when the environment asks for a trace, else 0. Then call tributary_trace_begin() once, when MPI is
 * initialised. All times are readings of one clock of the caller's, which never goes back.
 */
int tributary_trace_wanted(void);
void tributary_trace_begin(uint32_t ranks, uint64_t now_ns);

/*
 * The number of a communicator whose `count` members have these ranks in the world, or
 * TRIBUTARY_TRACE_NONE if there is no room for it. Communicators of the same members are asked for in the
 * same order at all of them.
 */
uint32_t tributary_trace_communicator(const uint32_t *members, size_t count);

/* Adds an operation that tributary_run(), or a function of the fast path, has run. */
void tributary_trace_add(const tributary_communicator *communicator, uint32_t number,
                         const tributary_operation *operation, uint64_t started_ns,
                         uint64_t ended_ns);

/* Adds an operation of the underlying MPI, to which this rank has contributed `len_bytes`. */
void tributary_trace_add_passed(uint32_t number, uint32_t collective, uint32_t root,
                                uint64_t len_bytes, uint64_t started_ns, uint64_t ended_ns);

/* This process's record as text, as tributary_report() gives one; tributary_report_free() frees it. */
char *tributary_trace_section(uint32_t rank, uint32_t ranks, uint64_t now_ns, size_t *len_bytes);

/* Writes the records of `ranks` processes where the environment says, as tributary_report_publish(). */
int tributary_trace_publish(const char *texts, const size_t *len_bytes, size_t ranks);

#endif
