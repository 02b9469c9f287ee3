/* The table from communicator handles to records. */
#ifndef TRIBUTARY_COMM_TABLE_H
#define TRIBUTARY_COMM_TABLE_H

#include "communicators.h"
#include "handle_table.h"

extern _Atomic(handle_table *) comm_table __attribute__((visibility("hidden")));

/* The record, or null. In a header: every collective begins with it. */
static inline comm_record *comm_table_find(MPI_Comm comm) {
    return handle_table_find(&comm_table, (uintptr_t)comm);
}

#endif
