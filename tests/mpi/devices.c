/*
 * Buffers in memory of a device, which this library must not touch: such calls go to the MPI at all ranks alike, also
 * if only one rank has such a buffer, and all others as ever.
 *
 * The driver is fake_driver.c. Memory of the device is memory that nobody may access. A signal handler plays the
 * MPI that can, and makes it accessible when it is touched. The report tells that the MPI, and not the library, has
 * carried the calls out.
 *
 * Prints how many calls must have gone to the MPI; the runner compares the report. The variable DEVICES says "none"
 * where no driver is loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "init.h"

/* Short enough that no MPI has the kernel move it, which would be refused. */
enum { ELEMENTS = 100, PAGE_BYTES = 4096 };

static int *device_memory[2];
static long passed;
static bool may_be_device;

static void say_where(const void *start) {
    static void (*add)(const void *, size_t);
    char path[PATH_MAX] = "";
    if (add == NULL) {
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        check_that(length > 0, "/proc/self/exe can't be read");
        strcat(dirname(path), "/libcuda.so.1");
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "devices: %s\n", dlerror());
            abort();
        }
        *(void **)&add = dlsym(library, "fake_driver_add");
    }
    add(start, PAGE_BYTES);
}

static void on_access(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    for (int at = 0; at < 2; at++) {
        char *start = (char *)device_memory[at];
        if ((char *)info->si_addr >= start && (char *)info->si_addr < start + PAGE_BYTES) {
            mprotect(start, PAGE_BYTES, PROT_READ | PROT_WRITE);
            return;
        }
    }
    signal(SIGSEGV, SIG_DFL);
}

static void make_memory(bool is_devices) {
    for (int at = 0; at < 2; at++) {
        device_memory[at] = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (is_devices) {
            say_where(device_memory[at]);
        }
    }
    struct sigaction action = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
}

/* What a copy to the device does. The memory is out of reach again afterwards. */
static int *on_device(int which) {
    mprotect(device_memory[which], PAGE_BYTES, PROT_READ | PROT_WRITE);
    for (int at = 0; at < ELEMENTS; at++) {
        device_memory[which][at] = which == 0 ? world.rank + at : -1;
    }
    mprotect(device_memory[which], PAGE_BYTES, PROT_NONE);
    return device_memory[which];
}

static void check_sums(const int *at, const char *what) {
    long long ranks = world.ranks;
    mprotect(device_memory[0], PAGE_BYTES, PROT_READ | PROT_WRITE);
    mprotect(device_memory[1], PAGE_BYTES, PROT_READ | PROT_WRITE);
    check_equal(ranks * (ranks - 1) / 2, at[0], what);
    check_equal(ranks * (ranks - 1) / 2 + ranks * (ELEMENTS - 1), at[ELEMENTS - 1], what);
}

static void count(bool goes_to_mpi) {
    passed += goes_to_mpi && world.rank == 0;
}

static void use_device(MPI_Comm comm, bool at_this_rank, const char *where) {
    int host[2][ELEMENTS];
    MPI_Request request;
    int *source = at_this_rank ? on_device(0) : host[0];
    int *target = at_this_rank ? on_device(1) : host[1];
    check_case("device memory at %s", where);
    for (int at = 0; at < ELEMENTS; at++) {
        host[0][at] = world.rank + at;
    }
    MPI_Allreduce(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm);
    count(true);
    check_sums(target, "MPI_Allreduce");
    target = at_this_rank ? on_device(1) : target;
    MPI_Bcast(world.rank == 0 ? source : target, ELEMENTS, MPI_INT, 0, comm);
    count(true);
    int *got = world.rank == 0 ? source : target;
    mprotect(device_memory[0], PAGE_BYTES, PROT_READ | PROT_WRITE);
    mprotect(device_memory[1], PAGE_BYTES, PROT_READ | PROT_WRITE);
    check_equal(ELEMENTS - 1, got[ELEMENTS - 1], "MPI_Bcast");
    source = at_this_rank ? on_device(0) : source;
    target = at_this_rank ? on_device(1) : target;
    MPI_Iallreduce(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, &request);
    count(true);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums(target, "MPI_Iallreduce");
    source = at_this_rank ? on_device(0) : source;
    target = at_this_rank ? on_device(1) : target;
    INIT(Allreduce)(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    count(true);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums(target, "MPI_Allreduce_init");
    MPI_Request_free(&request);
}

/* On communicators where buffers may be device memory, but these are not. */
static void use_host(MPI_Comm comm) {
    int source[ELEMENTS];
    int target[ELEMENTS];
    MPI_Request request;
    check_case("host memory");
    for (int at = 0; at < ELEMENTS; at++) {
        source[at] = world.rank + at;
    }
    MPI_Allreduce(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm);
    check_sums(target, "MPI_Allreduce");
    MPI_Iallreduce(source, target, ELEMENTS, MPI_INT, MPI_SUM, comm, &request);
    count(may_be_device);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums(target, "MPI_Iallreduce");
    MPI_Barrier(comm);
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Comm copy;
    const char *devices = getenv("DEVICES");
    may_be_device = devices == NULL || strcmp(devices, "none") != 0;
    make_memory(may_be_device);
    check_start(argc, argv, "devices", MPI_THREAD_SINGLE);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    use_host(MPI_COMM_WORLD);
    if (may_be_device) {
        use_device(MPI_COMM_WORLD, true, "all ranks");
        use_device(copy, world.rank == world.ranks - 1, "the last rank");
        use_device(copy, world.rank == 0, "the first rank");
    }
    use_host(copy);
    if (world.rank == 0) {
        printf("passed %ld\n", passed);
    }
    MPI_Comm_free(&copy);
    return check_finish();
}
