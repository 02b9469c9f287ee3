/*
 * Memory of devices, which a processor may not be able to touch: a CUDA-aware MPI takes its addresses as buffers.
 *
 * Only a process that has the driver of such a device loaded can have such memory, and an MPI that takes it has loaded
 * the driver in MPI_Init. So the members of a communicator agree, while it is set up, whether any of them has; if none
 * has, nothing more is asked. Else buffers may be device memory at some ranks and not at others, so all ask
 * each other.
 */
#ifndef TRIBUTARY_DEVICES_H
#define TRIBUTARY_DEVICES_H

#include "tributary_core.h"

#include <stdbool.h>

/* Whether any member has a driver loaded. Collective, and the same at all. */
bool devices_are_possible(const tributary_bootstrap *members);

/* Whether any member's `first` or `second` is device memory; null is none. Collective, and the same at all. */
bool devices_are_used(const tributary_bootstrap *members, const void *first, const void *second);

#endif
