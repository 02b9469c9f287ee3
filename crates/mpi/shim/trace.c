/* Names communicators to the record, and gathers the records of all ranks. */
#include "trace.h"
#include "report.h"
#include "shim.h"
#include "timing.h"
#include "tributary_core.h"

#include <stdlib.h>

bool trace_is_on;

void trace_begin(void) {
    int ranks = 0;
    underlying.Comm_size(shim_world, &ranks);
    trace_is_on = true;
    tributary_trace_begin((uint32_t)ranks, timing_now_ns());
}

/* The ranks of the members in the world; TRIBUTARY_TRACE_NONE if some are in no world of ours. */
static uint32_t numbered(comm_record *record) {
    int is_inter = 0;
    size_t size = (size_t)record->size;
    int *ranks = malloc(2 * size * sizeof *ranks);
    uint32_t number = TRIBUTARY_TRACE_NONE;
    if (ranks != NULL && underlying.Comm_test_inter(record->comm, &is_inter) == MPI_SUCCESS &&
        !is_inter) {
        int *numbers = ranks + size;
        for (size_t index = 0; index < size; index++) {
            numbers[index] = (int)index;
        }
        MPI_Group world;
        MPI_Group own;
        underlying.Comm_group(shim_world, &world);
        underlying.Comm_group(record->comm, &own);
        underlying.Group_translate_ranks(own, record->size, numbers, world, ranks);
        underlying.Group_free(&world);
        underlying.Group_free(&own);
        bool is_known = true;
        for (size_t index = 0; index < size; index++) {
            is_known = is_known && ranks[index] != MPI_UNDEFINED;
        }
        if (is_known) {
            number = tributary_trace_communicator((const uint32_t *)ranks, size);
        }
    }
    free(ranks);
    return number;
}

/* The record's number in the trace, asked for once. */
static uint32_t number_of(comm_record *record) {
    if (!record->is_numbered) {
        record->trace_number = numbered(record);
        record->is_numbered = true;
    }
    return record->trace_number;
}

void trace_add(comm_record *record, const tributary_operation *operation, trace_span span) {
    tributary_trace_add(record->core, number_of(record), operation, span.started_ns,
                        span.ended_ns);
}

void trace_add_passed(MPI_Comm comm, uint32_t collective, int root, uint64_t len_bytes,
                      trace_span span) {
    comm_record *record = communicators_find(comm);
    uint32_t number = record != NULL ? number_of(record) : TRIBUTARY_TRACE_NONE;
    tributary_trace_add_passed(number, collective, root > 0 ? (uint32_t)root : 0, len_bytes,
                               span.started_ns, span.ended_ns);
}

void trace_collect(MPI_Comm comm) {
    int rank = 0;
    int ranks = 0;
    underlying.Comm_rank(shim_world, &rank);
    underlying.Comm_size(shim_world, &ranks);
    size_t len_bytes = 0;
    char *section =
        tributary_trace_section((uint32_t)rank, (uint32_t)ranks, timing_now_ns(), &len_bytes);
    report_gather(comm, "trace", section, len_bytes, tributary_trace_publish);
    trace_is_on = false;
    tributary_report_free(section, len_bytes);
}
