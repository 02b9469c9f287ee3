/* Measures how long blocking collectives take. */
#include "timing.h"
#include "blocking.h"
#include "maps.h"
#include "shim.h"
#include "trace.h"

#include <stdlib.h>
#include <time.h>

bool timing_is_on;

void timing_begin(void) {
    timing_is_on = true;
    tributary_times_begin();
}

void timing_end(void) {
    timing_is_on = false;
    tributary_times_end();
}

uint64_t timing_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Writes the ranks of the members in the world. False if some are in no world of ours. */
static bool write_members(const comm_record *record, int *ranks, int *numbers) {
    int is_inter = 0;
    if (underlying.Comm_test_inter(record->comm, &is_inter) != MPI_SUCCESS || is_inter) {
        return false;
    }
    for (int index = 0; index < record->size; index++) {
        numbers[index] = index;
    }
    MPI_Group world;
    MPI_Group own;
    underlying.Comm_group(shim_world, &world);
    underlying.Comm_group(record->comm, &own);
    underlying.Group_translate_ranks(own, record->size, numbers, world, ranks);
    underlying.Group_free(&world);
    underlying.Group_free(&own);
    bool is_known = true;
    for (int index = 0; index < record->size; index++) {
        is_known = is_known && ranks[index] != MPI_UNDEFINED;
    }
    return is_known;
}

/* Gives the record its numbers for times and the trace, once; none where its members are not all of this world. */
static void number_once(comm_record *record) {
    if (record->is_numbered) {
        return;
    }
    record->times_number = TRIBUTARY_TIMES_NONE;
    record->trace_number = TRIBUTARY_TRACE_NONE;
    size_t size = (size_t)record->size;
    int *ranks = malloc(2 * size * sizeof *ranks);
    if (ranks != NULL && write_members(record, ranks, ranks + size)) {
        record->times_number = tributary_times_communicator((const uint32_t *)ranks, size);
        if (trace_is_on) {
            record->trace_number = tributary_trace_communicator((const uint32_t *)ranks, size);
        }
    }
    free(ranks);
    record->is_numbered = true;
}

int timing_run(comm_record *record, tributary_operation *operation, staging *through) {
    uint64_t started_ns = timing_now_ns();
    int error = run_unmeasured(record, operation, through);
    uint64_t ended_ns = timing_now_ns();
    if (error == MPI_SUCCESS) {
        number_once(record);
        tributary_count_time(record->core, record->times_number, operation, ended_ns - started_ns);
        if (trace_is_on) {
            trace_add(record, operation, (trace_span){started_ns, ended_ns});
        }
    }
    return error;
}

void timing_add_passed(MPI_Comm comm, uint32_t collective, int root, uint64_t len_bytes,
                       uint64_t started_ns, uint64_t ended_ns) {
    comm_record *record = communicators_find(comm);
    uint32_t times_number = TRIBUTARY_TIMES_NONE;
    uint32_t trace_number = TRIBUTARY_TRACE_NONE;
    if (record != NULL) {
        number_once(record);
        times_number = record->times_number;
        trace_number = record->trace_number;
    }
    tributary_count_time_passed(times_number, collective, len_bytes, ended_ns - started_ns);
    if (trace_is_on) {
        trace_add_passed(trace_number, collective, root, len_bytes,
                         (trace_span){started_ns, ended_ns});
    }
}

uint64_t timing_len_bytes(MPI_Count count, MPI_Datatype datatype) {
    if (count <= 0) {
        return 0; /* the datatype may be anything */
    }
    const datatype_entry *entry = maps_datatype(datatype);
    uint64_t element_bytes = entry != NULL ? entry->size_bytes : 0;
    int size_bytes = 0;
    if (entry != NULL && element_bytes == 0) {
        /* A pair with a gap, which is sent too where it is offloaded: both have one size class. */
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        underlying.Type_get_extent(datatype, &lower, &extent);
        element_bytes = (uint64_t)extent;
    } else if (entry == NULL && underlying.Type_size(datatype, &size_bytes) == MPI_SUCCESS) {
        element_bytes = size_bytes > 0 ? (uint64_t)size_bytes : 0;
    }
    uint64_t len_bytes = 0;
    return __builtin_mul_overflow(element_bytes, (uint64_t)count, &len_bytes) ? UINT64_MAX
                                                                              : len_bytes;
}
