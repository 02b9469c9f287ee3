/*
 * Memory of devices, which a processor may not be able to touch: a CUDA-aware MPI takes its addresses as buffers.
 *
 * Only a process that has the driver of such a device loaded can have such memory, and an MPI that takes it has loaded
 * the driver in MPI_Init. So the members of a communicator agree, while it is set up, whether any of them has; if none
 * has, nothing more is asked. Else buffers may be device memory at some ranks and not at others, so all ask
 * each other (communicators_agree()).
 */
#ifndef TRIBUTARY_DEVICES_H
#define TRIBUTARY_DEVICES_H

#include <stdbool.h>

/* Looks for drivers in this process. Whether there is any. */
bool devices_find(void);

/* Whether the drivers that were found call `first` or `second` device memory; null is none. */
bool devices_have(const void *first, const void *second);

#endif
