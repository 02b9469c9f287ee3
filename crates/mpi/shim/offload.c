/* Decides in unusual cases: a communicator that is not COMM_READY, a datatype not in the table. */
#include "offload.h"
#include "deciding.h"
#include "devices.h"
#include "fault_tolerance.h"
#include "timing.h"

/* Sets up a late communicator, notices a revoked one, and returns the state. */
static comm_state settle(comm_record *record, offload_mode mode) {
    comm_state state = atomic_load_explicit(&record->state, memory_order_relaxed);
    if (state != COMM_PASSES && fault_tolerance_is_on() &&
        fault_tolerance_is_revoked(record->comm)) {
        communicators_revoked(record);
    } else if (state == COMM_LATE && mode != OFFLOAD_NONBLOCKING) {
        communicators_join_in_time(record);
    }
    return atomic_load_explicit(&record->state, memory_order_relaxed);
}

/*
 * Whether the core calls MPI for the elements while it runs the operation. In a nonblocking or persistent one
 * that would be in a thread that must not call MPI.
 */
static bool combines_on_the_way(const comm_record *record, uint32_t collective, verdict judged,
                                uint32_t element_bytes, offload_mode mode) {
    bool goes_between = collective == TRIBUTARY_ALLREDUCE || collective == TRIBUTARY_REDUCE;
    return mode == OFFLOAD_BLOCKING && (record->is_on_one_host || goes_between) &&
           element_bytes <= tributary_communicator_combines(record->core, judged == VERDICT_COMBINE);
}

/*
 * The verdict on an operation whose elements only MPI can combine, on a communicator that is set up. Where they
 * are not combined on the way, the core gathers all vectors first.
 */
static verdict judge_combining_on(const comm_record *record, uint32_t collective, verdict judged,
                                  uint32_t element_bytes, uint64_t elements, offload_mode mode) {
    uint64_t len_bytes = 0;
    if (combines_on_the_way(record, collective, judged, element_bytes, mode)) {
        return VERDICT_OFFLOAD;
    }
    bool is_gathered = !__builtin_mul_overflow(elements, (uint64_t)element_bytes, &len_bytes) &&
                       len_bytes <= tributary_communicator_gathers(record->core);
    if (is_gathered) {
        return VERDICT_OFFLOAD;
    }
    return verdict_pass(mode != OFFLOAD_BLOCKING ? TRIBUTARY_PASS_COMBINER_NONBLOCKING
                        : record->is_on_one_host ? TRIBUTARY_PASS_LONG_ELEMENT
                                                 : TRIBUTARY_PASS_COMBINER_HOSTS);
}

static bool reduces(uint32_t collective) {
    return collective != TRIBUTARY_BARRIER && collective != TRIBUTARY_BROADCAST &&
           collective != TRIBUTARY_ALLGATHER;
}

/* The verdict on memory that may be a device's. A nonblocking call can't ask the others. */
static verdict judge_memory(comm_record *record, offload_mode mode, const void *source,
                            const void *target) {
    if (mode == OFFLOAD_NONBLOCKING) {
        return verdict_pass(TRIBUTARY_PASS_DEVICE_NONBLOCKING);
    }
    tributary_bootstrap members = communicators_bootstrap(&record->comm, record->rank, record->size);
    bool any = communicators_agree(&members, devices_have(source, target)) != 0;
    return any ? verdict_pass(TRIBUTARY_PASS_DEVICE) : VERDICT_OFFLOAD;
}

/* The verdict on a call whose arguments are not in the way, by the communicator and the memory. */
static verdict judge_on(comm_record *record, uint32_t collective, verdict judged,
                        uint32_t element_bytes, uint64_t elements, offload_mode mode,
                        const void *source, const void *target) {
    comm_state state = settle(record, mode);
    if (state != COMM_READY && state != COMM_WATCHED) {
        return verdict_pass(atomic_load_explicit(&record->pass_reason, memory_order_relaxed));
    }
    if (judged != VERDICT_OFFLOAD) {
        judged = judge_combining_on(record, collective, judged, element_bytes, elements, mode);
    }
    if (verdict_passes(judged)) {
        return judged;
    }
    if (record->keeps_from_rounding && reduces(collective)) {
        return verdict_pass(TRIBUTARY_PASS_ROUNDING);
    }
    bool asks = record->asks_devices && collective != TRIBUTARY_BARRIER;
    return asks ? judge_memory(record, mode, source, target) : VERDICT_OFFLOAD;
}

__attribute__((noinline)) comm_record *decide_slowly(comm_record *record, uint32_t collective,
                                                     verdict judged, uint32_t element_bytes,
                                                     uint64_t elements, offload_mode mode,
                                                     const void *source, const void *target) {
    /* Of two groups, roots and others have other arguments, so these may be a reason at some ranks alone. */
    if (atomic_load_explicit(&record->pass_reason, memory_order_relaxed) == TRIBUTARY_PASS_INTERCOMMUNICATOR) {
        judged = verdict_pass(TRIBUTARY_PASS_INTERCOMMUNICATOR);
    }
    /* A reason in the arguments takes precedence over one in the communicator. */
    if (!verdict_passes(judged)) {
        judged = judge_on(record, collective, judged, element_bytes, elements, mode, source, target);
    }
    if (!verdict_passes(judged)) {
        return record;
    }
    tributary_count_passed(record->core, collective, verdict_reason(judged));
    if (mode != OFFLOAD_BLOCKING) {
        timing_leave_out(collective);
    }
    return NULL;
}

/* How many levels of MPI_Type_contiguous are followed. */
#define NESTED_MAX 4

static bool copies_one_type(int combiner) {
    return combiner == MPI_COMBINER_CONTIGUOUS || combiner == MPI_COMBINER_DUP;
}

static MPI_Datatype made_of_small(MPI_Datatype datatype) {
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    MPI_Aint no_address = 0;
    int combiner = MPI_COMBINER_NAMED;
    int number = 0;
    int integers = 0;
    int addresses = 0;
    int datatypes = 0;
    if (underlying.Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner) !=
            MPI_SUCCESS ||
        !copies_one_type(combiner) || integers > 1 || addresses != 0 || datatypes != 1) {
        return MPI_DATATYPE_NULL;
    }
    int error = underlying.Type_get_contents(datatype, integers, addresses, datatypes, &number,
                                             &no_address, &inner);
    return error == MPI_SUCCESS ? inner : MPI_DATATYPE_NULL;
}

#if MPI_VERSION >= 4
/* A type may have counts that the form with int can't return. */
static MPI_Datatype made_of_large(MPI_Datatype datatype) {
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    MPI_Aint no_address = 0;
    int combiner = MPI_COMBINER_NAMED;
    int number = 0;
    MPI_Count count = 0;
    MPI_Count integers = 0;
    MPI_Count addresses = 0;
    MPI_Count counts = 0;
    MPI_Count datatypes = 0;
    if (underlying.Type_get_envelope_c(datatype, &integers, &addresses, &counts, &datatypes,
                                       &combiner) != MPI_SUCCESS ||
        !copies_one_type(combiner) || integers + counts > 1 || addresses != 0 || datatypes != 1) {
        return MPI_DATATYPE_NULL;
    }
    int error = underlying.Type_get_contents_c(datatype, integers, addresses, counts, datatypes,
                                               &number, &no_address, &count, &inner);
    return error == MPI_SUCCESS ? inner : MPI_DATATYPE_NULL;
}
#endif

/* The type of which MPI_Type_contiguous or MPI_Type_dup made `datatype`; else MPI_DATATYPE_NULL. */
static MPI_Datatype made_of(MPI_Datatype datatype) {
#if MPI_VERSION >= 4
    if (UNDERLYING_HAS(Type_get_envelope_c) && UNDERLYING_HAS(Type_get_contents_c)) {
        return made_of_large(datatype);
    }
#endif
    return made_of_small(datatype);
}

/* Whether a committed type that is not in the table is a row of dense elements. */
static bool is_dense_row(MPI_Datatype datatype, int depth) {
    MPI_Datatype inner = made_of(datatype);
    if (inner == MPI_DATATYPE_NULL) {
        return false;
    }
    const datatype_entry *entry = maps_datatype(inner);
    if (entry != NULL) {
        return entry->size_bytes != 0; /* predefined: nothing to free */
    }
    bool dense = depth < NESTED_MAX && is_dense_row(inner, depth + 1);
    int named = MPI_COMBINER_NAMED;
    int ignored[3];
    /* A predefined type that the table lacks must not be freed. */
    bool is_made = underlying.Type_get_envelope(inner, &ignored[0], &ignored[1], &ignored[2],
                                             &named) != MPI_SUCCESS ||
                   named != MPI_COMBINER_NAMED;
    if (is_made) {
        underlying.Type_free(&inner);
    }
    return dense;
}

bool element_of_unusual(MPI_Datatype datatype, int64_t *size_bytes, bool *dense) {
    int size = MPI_UNDEFINED;
    if (datatype == MPI_DATATYPE_NULL || !staging_accepts(datatype) ||
        underlying.Type_size(datatype, &size) != MPI_SUCCESS) {
        return false;
    }
    *size_bytes = size != MPI_UNDEFINED ? size : INT64_MAX;
    *dense = maps_datatype(datatype) == NULL && is_dense_row(datatype, 0);
    return true;
}
