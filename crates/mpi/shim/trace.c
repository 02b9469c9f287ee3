/* Gives operations to the record, and gathers the records of all ranks. */
#include "trace.h"
#include "report.h"
#include "shim.h"
#include "timing.h"
#include "tributary_core.h"

bool trace_is_on;

void trace_begin(void) {
    int ranks = 0;
    underlying.Comm_size(shim_world, &ranks);
    trace_is_on = true;
    tributary_trace_begin((uint32_t)ranks, timing_now_ns());
}

void trace_add(comm_record *record, const tributary_operation *operation, trace_span span) {
    tributary_trace_add(record->core, record->trace_number, operation, span.started_ns,
                        span.ended_ns);
}

void trace_add_passed(uint32_t number, uint32_t collective, int root, uint64_t len_bytes,
                      trace_span span) {
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
