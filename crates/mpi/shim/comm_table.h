/*
 * Hash table from communicator handles to records: readers take no lock, writers take one.
 */
#ifndef TRIBUTARY_COMM_TABLE_H
#define TRIBUTARY_COMM_TABLE_H

#include "communicators.h"

/* The record, or null. */
comm_record *comm_table_find(MPI_Comm comm);

/* Adds a record under its `comm`, which must not be in the table. False: out of memory. */
bool comm_table_insert(comm_record *record);

/* Takes a record out; nothing happens when it is not in. */
void comm_table_remove(comm_record *record);

/* Calls `visit`, which may remove it, on every record. No other thread may use the table. */
void comm_table_visit(void (*visit)(comm_record *record));

#endif
