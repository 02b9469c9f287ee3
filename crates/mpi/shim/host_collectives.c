/*
 * The collectives that are offloaded up to the length from which on the underlying MPI is faster,
 * blocking and nonblocking. That length is the communicator's.
 *
 * Each offload_* fills `operation` and returns the record to run it on, or counts the call as passed
 * through and returns null; `through` says whether cuts or a dense copy are needed. A rank that
 * contributes or receives nothing may pass no buffer. So a rank checks only the buffers that it uses;
 * otherwise it would pass on a call that the others offload.
 */
#include "blocking.h"
#include "deciding.h"
#include "persistent.h"
#include "shim.h"
#include "timing.h"

#include <limits.h>

/* Numbers of elements for each rank, in an array of either kind; the other is null. */
typedef struct count_array {
    const int *small;
    const MPI_Count *large;
} count_array;

/* The elements that one rank sends to, or receives from each rank in, an allgather. */
typedef struct gather_side {
    MPI_Count count;
    MPI_Datatype datatype;
} gather_side;

/* The elements that a rank receives from each rank in an allgatherv, and where they begin in its buffer. */
typedef struct gather_blocks {
    count_array counts;
    const int *places; /* in extents of the datatype, in one of two arrays */
    const MPI_Aint *large_places;
    MPI_Datatype datatype;
} gather_blocks;

/* Blocks of an allgatherv that differ are padded to the longest. Up to so much in all, whatever it wastes. */
enum { PADDED_ANYWAY_BYTES = 16384 };

/* decide(), then by the length of this rank's contribution. */
static comm_record *decide_by_length(comm_record *record, uint32_t collective, verdict judged,
                                     uint64_t len_bytes, offload_mode mode,
                                     const tributary_operation *operation) {
    record = decide(record, collective, judged, mode, operation);
    if (record == NULL || len_bytes <= record->longest_bytes[collective]) {
        return record;
    }
    tributary_count_passed(record->core, collective, TRIBUTARY_PASS_SLOWER);
    if (mode != OFFLOAD_BLOCKING) {
        timing_leave_out(collective);
    }
    return NULL;
}

/* Bytes of a reduction's vector in memory; its datatype is in the table, or it has a combiner. */
static uint64_t vector_bytes(MPI_Count count, MPI_Datatype datatype,
                             const tributary_operation *operation) {
    uint64_t element_bytes = operation->combiner.element_bytes;
    if (element_bytes == 0) {
        element_bytes = maps_datatype(datatype)->size_bytes;
    }
    if (element_bytes == 0) { /* a pair with a gap, which is sent too */
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        underlying.Type_get_extent(datatype, &lower, &extent);
        element_bytes = (uint64_t)extent;
    }
    uint64_t bytes = 0;
    return __builtin_mul_overflow(element_bytes, (uint64_t)count, &bytes) ? UINT64_MAX : bytes;
}

/* Ends the decision on a reduction of `count` elements in all, and fills in its buffers. */
static comm_record *decide_reduction(comm_record *record, uint32_t collective, verdict judged,
                                     MPI_Count count, MPI_Datatype datatype, const void *sendbuf,
                                     void *recvbuf, offload_mode mode,
                                     tributary_operation *operation) {
    operation->collective = collective;
    operation->root = 0;
    operation->source = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
    operation->target = recvbuf;
    operation->cuts = NULL;
    uint64_t len_bytes = !verdict_passes(judged) ? vector_bytes(count, datatype, operation) : 0;
    return decide_by_length(record, collective, judged, len_bytes, mode, operation);
}

static bool scatter_buffers_are_valid(const void *sendbuf, const void *recvbuf, MPI_Count own) {
    if (sendbuf == MPI_IN_PLACE) {
        return is_buffer(recvbuf);
    }
    return sendbuf != NULL && (own == 0 || (is_buffer(recvbuf) && sendbuf != recvbuf));
}

static MPI_Count count_at(count_array counts, int rank) {
    return counts.small != NULL ? counts.small[rank] : counts.large[rank];
}

/* The sum of the counts, and whether they differ. -1 if MPI must judge them. */
static MPI_Count add_up(count_array counts, int ranks, bool *differ) {
    MPI_Count all = 0;
    *differ = false;
    if (counts.small == NULL && counts.large == NULL) {
        return -1;
    }
    for (int rank = 0; rank < ranks; rank++) {
        MPI_Count count = count_at(counts, rank);
        if (count < 0 || __builtin_add_overflow(all, count, &all)) {
            return -1;
        }
        *differ |= count != count_at(counts, 0);
    }
    return all;
}

static comm_record *offload_reduce_scatter(const void *sendbuf, void *recvbuf, count_array counts,
                                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                    offload_mode mode, tributary_operation *operation,
                                    staging *through) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    bool differ = false;
    MPI_Count all = add_up(counts, record->size, &differ);
    verdict judged = judge_reduction(all, datatype, op, operation);
    if (!verdict_passes(judged) &&
        !scatter_buffers_are_valid(sendbuf, recvbuf, count_at(counts, record->rank))) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    *through = (staging){
        .needs_cuts = differ,
        .counts = counts.small,
        .large_counts = counts.large,
        .ranks = record->size,
    };
    return decide_reduction(record, TRIBUTARY_REDUCE_SCATTER, judged, all, datatype, sendbuf,
                            recvbuf, mode, operation);
}

static comm_record *offload_reduce_scatter_block(const void *sendbuf, void *recvbuf, MPI_Count count,
                                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                          offload_mode mode, tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    MPI_Count all = 0;
    if (count < 0 || __builtin_mul_overflow(count, (MPI_Count)record->size, &all)) {
        all = -1;
    }
    verdict judged = judge_reduction(all, datatype, op, operation);
    if (!verdict_passes(judged) && !scatter_buffers_are_valid(sendbuf, recvbuf, count)) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    return decide_reduction(record, TRIBUTARY_REDUCE_SCATTER, judged, all, datatype, sendbuf,
                            recvbuf, mode, operation);
}

static comm_record *offload_scan(uint32_t collective, const void *sendbuf, void *recvbuf, MPI_Count count,
                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, offload_mode mode,
                          tributary_operation *operation) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    verdict judged = judge_reduction(count, datatype, op, operation);
    /*
     * An exclusive scan has no result at rank 0, whose receive buffer may be anything, even the send
     * buffer. All ranks must decide alike, so equal buffers count as in place at every rank.
     */
    bool may_alias = collective == TRIBUTARY_EXSCAN;
    bool has_target = recvbuf != NULL || (may_alias && record->rank == 0 && sendbuf != MPI_IN_PLACE);
    if (!verdict_passes(judged) && (sendbuf == NULL || recvbuf == MPI_IN_PLACE || !has_target ||
                                    (sendbuf == recvbuf && !may_alias))) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    return decide_reduction(record, collective, judged, count, datatype, sendbuf, recvbuf, mode,
                            operation);
}

/* Bytes that one side describes, at most INT64_MAX. False: MPI must judge the arguments. */
static bool side_bytes(gather_side side, int64_t *bytes, bool *dense) {
    int64_t size_bytes = 0;
    if (side.count < 0 || !element_of(side.datatype, &size_bytes, dense)) {
        return false;
    }
    if (__builtin_mul_overflow(size_bytes, (int64_t)side.count, bytes)) {
        *bytes = INT64_MAX;
    }
    return true;
}

/*
 * The verdict on the bytes of one contribution. The limit and the check of MPI_Pack apply to dense types
 * too: another rank may describe the same bytes by a type that must be packed.
 */
static verdict judge_gathered(int64_t block_bytes, int ranks, tributary_operation *operation) {
    int64_t all_bytes = 0;
    operation->elements = (uint64_t)block_bytes;
    if (block_bytes == 0) {
        return verdict_pass(TRIBUTARY_PASS_EMPTY);
    }
    if (__builtin_mul_overflow(block_bytes, (int64_t)ranks, &all_bytes) || all_bytes > INT_MAX) {
        return verdict_pass(TRIBUTARY_PASS_TOO_LONG);
    }
    return staging_is_possible() ? VERDICT_OFFLOAD : verdict_pass(TRIBUTARY_PASS_DATATYPE);
}

/* Where the elements of `rank` lie in the receive buffer. */
static void *place_of(void *recvbuf, gather_side receive, int rank) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    underlying.Type_get_extent(receive.datatype, &lower, &extent);
    return (char *)recvbuf + (MPI_Aint)rank * (MPI_Aint)receive.count * extent;
}

/* The dense copy holds all contributions; this rank's is where an in-place call has it. */
static staging gather_through(const void *sendbuf, gather_side send, void *recvbuf,
                              gather_side receive, const comm_record *record, int block_bytes) {
    bool in_place = sendbuf == MPI_IN_PLACE;
    gather_side from = in_place ? receive : send;
    return (staging){
        .needed = true,
        .packs = true,
        .unpacks = true,
        .from = {.user = in_place ? place_of(recvbuf, receive, record->rank) : (void *)sendbuf,
                 .count = (int)from.count,
                 .datatype = from.datatype},
        .to = {.user = recvbuf,
               .count = (int)receive.count * record->size,
               .datatype = receive.datatype},
        .len_bytes = block_bytes * record->size,
        .packed_at = block_bytes * record->rank,
    };
}

/* An allgather without a dense copy, whose length is known already. */
static void fill_allgather(const void *sendbuf, void *recvbuf, int64_t own_at,
                           tributary_operation *operation) {
    operation->collective = TRIBUTARY_ALLGATHER;
    operation->root = 0;
    operation->datatype = TRIBUTARY_U8;
    operation->operator_ = TRIBUTARY_BROADCAST_OPERATOR;
    operation->combiner = no_combiner();
    operation->source = sendbuf == MPI_IN_PLACE ? (char *)recvbuf + own_at : sendbuf;
    operation->target = recvbuf;
    operation->cuts = NULL;
}

static comm_record *offload_allgather(const void *sendbuf, gather_side send, void *recvbuf,
                               gather_side receive, MPI_Comm comm, offload_mode mode,
                               tributary_operation *operation, staging *through) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    bool in_place = sendbuf == MPI_IN_PLACE;
    int64_t block_bytes = 0;
    int64_t sent_bytes = 0;
    bool dense = false;
    bool sends_dense = true;
    verdict judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    if (side_bytes(receive, &block_bytes, &dense) &&
        (in_place ||
         (side_bytes(send, &sent_bytes, &sends_dense) && sent_bytes == block_bytes))) {
        judged = judge_gathered(block_bytes, record->size, operation);
    }
    bool lacks_buffer = (dense && !is_buffer(recvbuf)) || (sends_dense && sendbuf == NULL);
    if (!verdict_passes(judged) && lacks_buffer) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    *through = (staging){.needed = false};
    fill_allgather(sendbuf, recvbuf, record->rank * block_bytes, operation);
    if (!verdict_passes(judged) && !(dense && sends_dense)) {
        *through = gather_through(sendbuf, send, recvbuf, receive, record, (int)block_bytes);
    }
    return decide_by_length(record, TRIBUTARY_ALLGATHER, judged, (uint64_t)block_bytes, mode,
                          operation);
}

static MPI_Aint place_at(gather_blocks blocks, int rank) {
    return blocks.places != NULL ? blocks.places[rank] : blocks.large_places[rank];
}

/* Whether the blocks lie one behind the other, as those of an allgather do. */
static bool is_in_a_row(gather_blocks blocks, int ranks) {
    MPI_Aint end = 0;
    for (int rank = 0; rank < ranks; rank++) {
        if (place_at(blocks, rank) != end) {
            return false;
        }
        end += (MPI_Aint)count_at(blocks.counts, rank);
    }
    return true;
}

/* Whether dense elements would lie at the null address. */
static bool lacks_place(const void *recvbuf, gather_blocks blocks, int ranks) {
    for (int rank = 0; recvbuf == NULL && rank < ranks; rank++) {
        if (count_at(blocks.counts, rank) > 0 && place_at(blocks, rank) == 0) {
            return true;
        }
    }
    return false;
}

/* The lengths of the blocks of an allgatherv, which all ranks know alike. */
typedef struct block_lengths {
    int64_t longest_bytes;
    int64_t own_bytes;
    MPI_Count all_counts;
    MPI_Count longest_count;
    bool differ;
    bool dense;
} block_lengths;

/* False: MPI must judge the arguments. */
static bool measure_blocks(gather_blocks blocks, const comm_record *record, block_lengths *found) {
    found->all_counts = add_up(blocks.counts, record->size, &found->differ);
    if (found->all_counts < 0 || (blocks.places == NULL && blocks.large_places == NULL)) {
        return false;
    }
    found->longest_count = 0;
    for (int rank = 0; rank < record->size; rank++) {
        MPI_Count count = count_at(blocks.counts, rank);
        found->longest_count = count > found->longest_count ? count : found->longest_count;
    }
    gather_side longest = {found->longest_count, blocks.datatype};
    gather_side own = {count_at(blocks.counts, record->rank), blocks.datatype};
    return side_bytes(longest, &found->longest_bytes, &found->dense) &&
           side_bytes(own, &found->own_bytes, &found->dense);
}

/* An allgather of blocks as long as the longest. The parts that pad the others are not handed on. */
static verdict judge_padded(const block_lengths *lengths, int ranks, tributary_operation *operation) {
    verdict judged = judge_gathered(lengths->longest_bytes, ranks, operation);
    if (verdict_passes(judged)) {
        return judged;
    }
    int64_t padded_bytes = lengths->longest_bytes * ranks;
    bool wastes = lengths->longest_count * ranks > 2 * lengths->all_counts;
    return wastes && padded_bytes > PADDED_ANYWAY_BYTES ? verdict_pass(TRIBUTARY_PASS_SLOWER) : judged;
}

static comm_record *offload_allgatherv(const void *sendbuf, gather_side send, void *recvbuf,
                                gather_blocks receive, MPI_Comm comm, offload_mode mode,
                                tributary_operation *operation, staging *through) {
    comm_record *record = find(comm);
    if (record == NULL) {
        return NULL;
    }
    bool in_place = sendbuf == MPI_IN_PLACE;
    block_lengths lengths = {.longest_bytes = 0};
    int64_t sent_bytes = 0;
    bool sends_dense = true;
    verdict judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    if (recvbuf != MPI_IN_PLACE && measure_blocks(receive, record, &lengths) &&
        (in_place || (side_bytes(send, &sent_bytes, &sends_dense) && sent_bytes == lengths.own_bytes))) {
        judged = judge_padded(&lengths, record->size, operation);
    }
    bool lacks_buffer = (lengths.dense && !verdict_passes(judged) &&
                         lacks_place(recvbuf, receive, record->size)) ||
                        (sends_dense && sendbuf == NULL && lengths.own_bytes > 0);
    if (!verdict_passes(judged) && lacks_buffer) {
        judged = verdict_pass(TRIBUTARY_PASS_ARGUMENTS);
    }
    *through = (staging){.needed = false};
    fill_allgather(sendbuf, recvbuf, record->rank * lengths.longest_bytes, operation);
    bool is_allgather = !lengths.differ && lengths.dense && sends_dense;
    if (!verdict_passes(judged) && !(is_allgather && is_in_a_row(receive, record->size))) {
        gather_side own = {count_at(receive.counts, record->rank), receive.datatype};
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        underlying.Type_get_extent(receive.datatype, &lower, &extent);
        char *own_place = (char *)recvbuf + place_at(receive, record->rank) * extent;
        gather_side from = in_place ? own : send;
        *through = (staging){
            .needed = true,
            .packs = lengths.own_bytes > 0,
            .unpacks = true,
            .from = {.user = in_place ? own_place : (void *)sendbuf,
                     .count = (int)from.count,
                     .datatype = from.datatype},
            .to = {.user = recvbuf, .count = 0, .datatype = receive.datatype},
            .len_bytes = (int)lengths.longest_bytes * record->size,
            .packed_at = (int)lengths.longest_bytes * record->rank,
            .counts = receive.counts.small,
            .large_counts = receive.counts.large,
            .ranks = record->size,
            .padded_bytes = (int)lengths.longest_bytes,
            .places = receive.places,
            .large_places = receive.large_places,
        };
    }
    return decide_by_length(record, TRIBUTARY_ALLGATHER, judged, (uint64_t)lengths.longest_bytes, mode,
                            operation);
}

/* Bytes of the vector that a reduce-scatter takes from each rank. */
static uint64_t scattered_bytes(count_array counts, MPI_Datatype datatype, MPI_Comm comm) {
    int ranks = 0;
    bool differ = false;
    underlying.Comm_size(comm, &ranks);
    return timing_len_bytes(add_up(counts, ranks, &differ), datatype);
}

/* The same where all blocks are equal. */
static uint64_t equally_scattered_bytes(MPI_Count count, MPI_Datatype datatype, MPI_Comm comm) {
    int ranks = 0;
    underlying.Comm_size(comm, &ranks);
    return timing_len_bytes(count, datatype) * (uint64_t)ranks;
}

/* Bytes that an allgather takes from this rank. */
static uint64_t gathered_bytes(const void *sendbuf, gather_side send, gather_side receive) {
    gather_side own = sendbuf == MPI_IN_PLACE ? receive : send;
    return timing_len_bytes(own.count, own.datatype);
}

/* Bytes that an allgatherv takes from this rank. */
static uint64_t gathered_block_bytes(const void *sendbuf, gather_side send, gather_blocks receive,
                                     MPI_Comm comm) {
    if (sendbuf != MPI_IN_PLACE) {
        return timing_len_bytes(send.count, send.datatype);
    }
    int rank = 0;
    underlying.Comm_rank(comm, &rank);
    return timing_len_bytes(count_at(receive.counts, rank), receive.datatype);
}

/*
 * Every form exists with int and with MPI_Count. `parameters` and `arguments` are the function's;
 * `decision` fills `operation` and `through`; `collective` and `len_bytes` are for the time of a call that
 * is passed through.
 */
#define BLOCKING(name, parameters, arguments, decision, collective, len_bytes)                     \
    TIMED(name, parameters, arguments, collective, 0, len_bytes)                                   \
    INTERPOSE(name, parameters) {                                                                  \
        tributary_operation operation;                                                             \
        staging through = {.needed = false};                                                       \
        comm_record *record = decision(OFFLOAD_BLOCKING);                                          \
        return record != NULL ? run(record, &operation, &through)                                  \
                              : PASS_ON(name, arguments);                                          \
    }

#define NONBLOCKING(name, parameters, arguments, decision)                                         \
    INTERPOSE(name, parameters) {                                                                  \
        tributary_operation operation;                                                             \
        staging through = {.needed = false};                                                       \
        comm_record *record = decision(OFFLOAD_NONBLOCKING);                                       \
        return record != NULL ? pending_start(record, &operation, &through, request)               \
                              : underlying.name arguments;                                         \
    }

/* `define` is INTERPOSE or INTERPOSE_EXTENSION, and `underlying_name` the member of `underlying`. */
#define PERSISTENT(define, name, underlying_name, parameters, arguments, decision)                 \
    define(name, parameters) {                                                                     \
        tributary_operation operation;                                                             \
        staging through = {.needed = false};                                                       \
        comm_record *record = decision(OFFLOAD_PERSISTENT);                                        \
        return record != NULL ? persistent_make(record, &operation, &through, request)             \
                              : persistent_passed(underlying.underlying_name arguments, request);  \
    }

/* The blocking and the nonblocking form. The lists come without their parentheses. */
#define COLLECTIVE(name, iname, parameters, arguments, decision, collective, len_bytes)            \
    BLOCKING(name, (parameters), (arguments), decision, collective, len_bytes)                     \
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

#define SMALL_BLOCKS                                                                               \
    ((gather_blocks){.counts = SMALL_COUNTS, .places = displs, .datatype = recvtype})
#define LARGE_BLOCKS                                                                               \
    ((gather_blocks){.counts = LARGE_COUNTS, .large_places = displs, .datatype = recvtype})
#define DECIDE_GATHER_BLOCKS(mode)                                                                 \
    offload_allgatherv(sendbuf, (gather_side){sendcount, sendtype}, recvbuf, SMALL_BLOCKS, comm,   \
                       mode, &operation, &through)
#define DECIDE_GATHER_BLOCKS_LARGE(mode)                                                           \
    offload_allgatherv(sendbuf, (gather_side){sendcount, sendtype}, recvbuf, LARGE_BLOCKS, comm,   \
                       mode, &operation, &through)

#define REDUCE_SCATTER(name, iname, count_type, decision, counts)                                  \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, const count_type recvcounts[],             \
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),                              \
               LIST(sendbuf, recvbuf, recvcounts, datatype, op, comm), decision,                   \
               TRIBUTARY_REDUCE_SCATTER, scattered_bytes(counts, datatype, comm))

#define REDUCE_SCATTER_BLOCK(name, iname, count_type)                                              \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, count_type recvcount,                      \
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),                              \
               LIST(sendbuf, recvbuf, recvcount, datatype, op, comm), DECIDE_SCATTER_BLOCK,        \
               TRIBUTARY_REDUCE_SCATTER, equally_scattered_bytes(recvcount, datatype, comm))

#define SCAN(name, iname, count_type, decision, collective)                                        \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,   \
                    MPI_Op op, MPI_Comm comm),                                                     \
               LIST(sendbuf, recvbuf, count, datatype, op, comm), decision, collective,            \
               timing_len_bytes(count, datatype))

#define ALLGATHER(name, iname, count_type)                                                         \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, count_type sendcount, MPI_Datatype sendtype,              \
                    void *recvbuf, count_type recvcount, MPI_Datatype recvtype, MPI_Comm comm),    \
               LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),             \
               DECIDE_GATHER, TRIBUTARY_ALLGATHER,                                                 \
               gathered_bytes(sendbuf, (gather_side){sendcount, sendtype},                         \
                              (gather_side){recvcount, recvtype}))

#define ALLGATHERV(name, iname, count_type, place_type, decision, blocks)                          \
    COLLECTIVE(name, iname,                                                                        \
               LIST(const void *sendbuf, count_type sendcount, MPI_Datatype sendtype,              \
                    void *recvbuf, const count_type recvcounts[], const place_type displs[],       \
                    MPI_Datatype recvtype, MPI_Comm comm),                                         \
               LIST(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm),    \
               decision, TRIBUTARY_ALLGATHER,                                                      \
               gathered_block_bytes(sendbuf, (gather_side){sendcount, sendtype}, blocks, comm))

REDUCE_SCATTER(Reduce_scatter, Ireduce_scatter, int, DECIDE_SCATTER, SMALL_COUNTS)
REDUCE_SCATTER_BLOCK(Reduce_scatter_block, Ireduce_scatter_block, int)
SCAN(Scan, Iscan, int, DECIDE_SCAN, TRIBUTARY_SCAN)
SCAN(Exscan, Iexscan, int, DECIDE_EXSCAN, TRIBUTARY_EXSCAN)
ALLGATHER(Allgather, Iallgather, int)
ALLGATHERV(Allgatherv, Iallgatherv, int, int, DECIDE_GATHER_BLOCKS, SMALL_BLOCKS)

REDUCE_SCATTER(Reduce_scatter_c, Ireduce_scatter_c, MPI_Count, DECIDE_SCATTER_LARGE, LARGE_COUNTS)
REDUCE_SCATTER_BLOCK(Reduce_scatter_block_c, Ireduce_scatter_block_c, MPI_Count)
SCAN(Scan_c, Iscan_c, MPI_Count, DECIDE_SCAN, TRIBUTARY_SCAN)
SCAN(Exscan_c, Iexscan_c, MPI_Count, DECIDE_EXSCAN, TRIBUTARY_EXSCAN)
ALLGATHER(Allgather_c, Iallgather_c, MPI_Count)
ALLGATHERV(Allgatherv_c, Iallgatherv_c, MPI_Count, MPI_Aint, DECIDE_GATHER_BLOCKS_LARGE,
           LARGE_BLOCKS)

#define PERSISTENT_SCATTER(define, name, underlying_name, count_type, decision)                    \
    PERSISTENT(define, name, underlying_name,                                                      \
               (const void *sendbuf, void *recvbuf, const count_type recvcounts[],                 \
                MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info,                    \
                MPI_Request *request),                                                             \
               (sendbuf, recvbuf, recvcounts, datatype, op, comm, info, request), decision)

#define PERSISTENT_SCATTER_BLOCK(define, name, underlying_name, count_type)                        \
    PERSISTENT(define, name, underlying_name,                                                      \
               (const void *sendbuf, void *recvbuf, count_type recvcount, MPI_Datatype datatype,   \
                MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request),                    \
               (sendbuf, recvbuf, recvcount, datatype, op, comm, info, request),                   \
               DECIDE_SCATTER_BLOCK)

#define PERSISTENT_SCAN(define, name, underlying_name, count_type, decision)                       \
    PERSISTENT(define, name, underlying_name,                                                      \
               (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,       \
                MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request),                    \
               (sendbuf, recvbuf, count, datatype, op, comm, info, request), decision)

#define PERSISTENT_GATHER(define, name, underlying_name, count_type)                               \
    PERSISTENT(define, name, underlying_name,                                                      \
               (const void *sendbuf, count_type sendcount, MPI_Datatype sendtype, void *recvbuf,   \
                count_type recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,         \
                MPI_Request *request),                                                             \
               (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info, request),  \
               DECIDE_GATHER)

#define PERSISTENT_GATHER_BLOCKS(define, name, underlying_name, count_type, place_type, decision)  \
    PERSISTENT(define, name, underlying_name,                                                      \
               (const void *sendbuf, count_type sendcount, MPI_Datatype sendtype, void *recvbuf,   \
                const count_type recvcounts[], const place_type displs[], MPI_Datatype recvtype,   \
                MPI_Comm comm, MPI_Info info, MPI_Request *request),                               \
               (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, info,   \
                request),                                                                          \
               decision)

PERSISTENT_SCATTER(INTERPOSE, Reduce_scatter_init, Reduce_scatter_init, int, DECIDE_SCATTER)
PERSISTENT_SCATTER_BLOCK(INTERPOSE, Reduce_scatter_block_init, Reduce_scatter_block_init, int)
PERSISTENT_SCAN(INTERPOSE, Scan_init, Scan_init, int, DECIDE_SCAN)
PERSISTENT_SCAN(INTERPOSE, Exscan_init, Exscan_init, int, DECIDE_EXSCAN)
PERSISTENT_GATHER(INTERPOSE, Allgather_init, Allgather_init, int)
PERSISTENT_GATHER_BLOCKS(INTERPOSE, Allgatherv_init, Allgatherv_init, int, int,
                         DECIDE_GATHER_BLOCKS)

PERSISTENT_SCATTER(INTERPOSE, Reduce_scatter_init_c, Reduce_scatter_init_c, MPI_Count,
                   DECIDE_SCATTER_LARGE)
PERSISTENT_SCATTER_BLOCK(INTERPOSE, Reduce_scatter_block_init_c, Reduce_scatter_block_init_c,
                         MPI_Count)
PERSISTENT_SCAN(INTERPOSE, Scan_init_c, Scan_init_c, MPI_Count, DECIDE_SCAN)
PERSISTENT_SCAN(INTERPOSE, Exscan_init_c, Exscan_init_c, MPI_Count, DECIDE_EXSCAN)
PERSISTENT_GATHER(INTERPOSE, Allgather_init_c, Allgather_init_c, MPI_Count)
PERSISTENT_GATHER_BLOCKS(INTERPOSE, Allgatherv_init_c, Allgatherv_init_c, MPI_Count, MPI_Aint,
                         DECIDE_GATHER_BLOCKS_LARGE)

#ifdef OPEN_MPI
PERSISTENT_SCATTER(INTERPOSE_EXTENSION, Reduce_scatter_init, X_Reduce_scatter_init, int,
                   DECIDE_SCATTER)
PERSISTENT_SCATTER_BLOCK(INTERPOSE_EXTENSION, Reduce_scatter_block_init,
                         X_Reduce_scatter_block_init, int)
PERSISTENT_SCAN(INTERPOSE_EXTENSION, Scan_init, X_Scan_init, int, DECIDE_SCAN)
PERSISTENT_SCAN(INTERPOSE_EXTENSION, Exscan_init, X_Exscan_init, int, DECIDE_EXSCAN)
PERSISTENT_GATHER(INTERPOSE_EXTENSION, Allgather_init, X_Allgather_init, int)
PERSISTENT_GATHER_BLOCKS(INTERPOSE_EXTENSION, Allgatherv_init, X_Allgatherv_init, int, int,
                         DECIDE_GATHER_BLOCKS)
#endif
