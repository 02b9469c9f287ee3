/* Gathers texts of all ranks, such as counts and times, to world rank 0, which writes them. */
#include "report.h"
#include "failure.h"
#include "shim.h"
#include "timing.h"
#include "trace.h"
#include "tributary_core.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

bool report_counts_others;

bool report_is_wanted(void) {
    /* Rank 0's environment decides: launchers may give another one to other hosts. */
    int wanted[3] = {tributary_report_wanted(), tributary_times_wanted(), tributary_trace_wanted()};
    underlying.Bcast(wanted, 3, MPI_INT, 0, shim_world);
    report_counts_others = wanted[0] != 0;
    if (wanted[2] != 0 || (wanted[0] != 0 && wanted[1] != 0)) {
        timing_begin();
    }
    if (wanted[2] != 0) {
        trace_begin();
    }
    return wanted[0] != 0;
}

static void publish(report_publisher *publisher, const char *texts, const int *lengths, int ranks) {
    size_t *len_bytes = malloc(sizeof *len_bytes * (size_t)ranks);
    if (len_bytes == NULL) {
        return;
    }
    for (int rank = 0; rank < ranks; rank++) {
        len_bytes[rank] = (size_t)lengths[rank];
    }
    if (publisher(texts, len_bytes, (size_t)ranks) != 0) {
        char message[FAILURE_MESSAGE_BYTES];
        tributary_message(message, sizeof message);
        fprintf(stderr, "tributary: %s\n", message);
    }
    free(len_bytes);
}

/* Where each rank's text begins. Returns their sum, or -1 if MPI_Gatherv can't count it. */
static int displace(const int *lengths, int *starts, int ranks) {
    int64_t total = 0;
    for (int rank = 0; rank < ranks; rank++) {
        starts[rank] = (int)total;
        total += lengths[rank];
        if (total > INT_MAX) {
            return -1;
        }
    }
    return (int)total;
}

void report_gather(MPI_Comm comm, const char *what, const char *text, size_t text_bytes,
                   report_publisher *publisher) {
    int rank = 0;
    int ranks = 0;
    underlying.Comm_rank(comm, &rank);
    underlying.Comm_size(comm, &ranks);
    int length = text_bytes <= INT_MAX / 4 ? (int)text_bytes : 0;
    int *lengths = rank == 0 ? calloc(2 * (size_t)ranks, sizeof *lengths) : NULL;
    underlying.Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, comm);
    int *starts = rank == 0 ? lengths + ranks : NULL;
    int total = rank == 0 ? displace(lengths, starts, ranks) : 0;
    underlying.Bcast(&total, 1, MPI_INT, 0, comm);
    if (total >= 0) {
        char *texts = rank == 0 ? calloc(1, (size_t)total + 1) : NULL;
        underlying.Gatherv(text, length, MPI_CHAR, texts, lengths, starts, MPI_CHAR, 0, comm);
        if (rank == 0) {
            publish(publisher, texts, lengths, ranks);
        }
        free(texts);
    } else if (rank == 0) {
        fprintf(stderr, "tributary: no %s: those of all ranks are longer than 2 GiB\n", what);
    }
    free(lengths);
}

void report_collect(MPI_Comm comm) {
    size_t text_bytes = 0;
    char *text = tributary_report(&text_bytes);
    report_gather(comm, "report", text, text_bytes, tributary_report_publish);
    tributary_report_free(text, text_bytes);
}
