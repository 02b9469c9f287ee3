/*
 * A fault in the library: one bit of every result is wrong. Linked into a second preload library, around the
 * functions of the core (the linker's --wrap), so that planted.py can show that the tests notice.
 */
#include "tributary_core.h"

#include <stddef.h>

#define MANY 256

/* Nonblocking operations under way, and where their results go. */
static struct {
    const tributary_request *request;
    unsigned char *target;
} started[MANY];

static void damage(void *target) {
    if (target != NULL) {
        *(unsigned char *)target ^= 1;
    }
}

int __real_tributary_run(tributary_communicator *communicator, const tributary_operation *operation);
int __wrap_tributary_run(tributary_communicator *communicator, const tributary_operation *operation) {
    int outcome = __real_tributary_run(communicator, operation);
    if (outcome == 0 && operation->elements > 0) {
        damage(operation->target);
    }
    return outcome;
}

int __real_tributary_allreduce(const tributary_communicator *communicator, uint32_t pair,
                               uint64_t elements, const void *source, void *target);
int __wrap_tributary_allreduce(const tributary_communicator *communicator, uint32_t pair,
                               uint64_t elements, const void *source, void *target) {
    int outcome = __real_tributary_allreduce(communicator, pair, elements, source, target);
    damage(target);
    return outcome;
}

int __real_tributary_reduce(const tributary_communicator *communicator, uint32_t pair,
                            uint64_t elements, uint32_t root, const void *source, void *target);
int __wrap_tributary_reduce(const tributary_communicator *communicator, uint32_t pair,
                            uint64_t elements, uint32_t root, const void *source, void *target) {
    int outcome = __real_tributary_reduce(communicator, pair, elements, root, source, target);
    damage(target);
    return outcome;
}

int __real_tributary_broadcast(const tributary_communicator *communicator, uint64_t len_bytes,
                               uint32_t root, void *buffer);
int __wrap_tributary_broadcast(const tributary_communicator *communicator, uint64_t len_bytes,
                               uint32_t root, void *buffer) {
    int outcome = __real_tributary_broadcast(communicator, len_bytes, root, buffer);
    damage(buffer);
    return outcome;
}

tributary_request *__real_tributary_start(tributary_communicator *communicator,
                                          const tributary_operation *operation);
tributary_request *__wrap_tributary_start(tributary_communicator *communicator,
                                          const tributary_operation *operation) {
    tributary_request *request = __real_tributary_start(communicator, operation);
    for (size_t at = 0; request != NULL && operation->elements > 0 && at < MANY; at++) {
        if (started[at].request == NULL) {
            started[at].request = request;
            started[at].target = operation->target;
            break;
        }
    }
    return request;
}

int __real_tributary_test(tributary_request *request);
int __wrap_tributary_test(tributary_request *request) {
    int outcome = __real_tributary_test(request);
    for (size_t at = 0; outcome == TRIBUTARY_DONE && at < MANY; at++) {
        if (started[at].request == request) {
            damage(started[at].target);
            started[at].request = NULL;
            break;
        }
    }
    return outcome;
}
