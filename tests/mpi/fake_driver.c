/*
 * Stands for the driver of a device, libcuda.so.1: the one function that the library asks, and one by which
 * the test says where the device's memory is.
 */
#include <stddef.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, MEMORY_TYPE = 2, DEVICE = 2, RANGES_MAX = 16 };

static struct {
    unsigned long long start;
    size_t bytes;
} ranges[RANGES_MAX];
static size_t range_count;
static long asked;

void fake_driver_add(const void *start, size_t bytes) {
    ranges[range_count].start = (unsigned long long)start;
    ranges[range_count++].bytes = bytes;
}

/* How often it was asked. */
long fake_driver_asked(void) {
    return asked;
}

int cuPointerGetAttribute(void *value, int attribute, unsigned long long address) {
    asked++;
    for (size_t at = 0; attribute == MEMORY_TYPE && at < range_count; at++) {
        if (address - ranges[at].start < ranges[at].bytes) {
            *(unsigned *)value = DEVICE;
            return SUCCESS;
        }
    }
    return INVALID_VALUE; /* the driver knows nothing of memory that it has not given */
}
