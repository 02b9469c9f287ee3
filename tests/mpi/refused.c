/*
 * The kernel refuses a rank the others' memory after it has granted it, as it does once a process has changed its
 * credentials: every operation still has its result, that one and those after it.
 *
 * The variable REFUSED says what is refused: "read", "write" or "both". A filter of system calls refuses it at the
 * last rank alone.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

enum { ELEMENTS = 300000, ROUNDS = 3 };

static double source[ELEMENTS];
static double target[ELEMENTS];

/* Has the kernel answer two system calls with EPERM from here on. */
static void refuse(long first, long second) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    check_equal(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
    check_equal(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "PR_SET_SECCOMP");
}

static void fill(double *at, int round) {
    for (int index = 0; index < ELEMENTS; index++) {
        at[index] = world.rank + round + index % 7;
    }
}

static void check_sums(const double *at, int round, const char *what) {
    int wrong = 0;
    for (int index = 0; index < ELEMENTS; index++) {
        double ranks = world.ranks;
        wrong += at[index] != ranks * (ranks - 1) / 2 + ranks * (round + index % 7);
    }
    check_equal(0, wrong, what);
}

static void reduce_and_broadcast(int round) {
    fill(source, round);
    MPI_Allreduce(source, target, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check_sums(target, round, "MPI_Allreduce");
    MPI_Allreduce(MPI_IN_PLACE, source, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check_sums(source, round, "MPI_Allreduce in place");
    fill(source, round);
    MPI_Bcast(source, ELEMENTS, MPI_DOUBLE, round % world.ranks, MPI_COMM_WORLD);
    check_equal(round % world.ranks + round + (ELEMENTS - 1) % 7, (long long)source[ELEMENTS - 1], "MPI_Bcast");
}

int main(int argc, char **argv) {
    check_start(argc, argv, "refused", MPI_THREAD_SINGLE);
    const char *what = getenv("REFUSED");
    check_case("before");
    reduce_and_broadcast(0);
    check_case("after %s was refused", what);
    if (world.rank == world.ranks - 1 && what != NULL) {
        bool reads = strcmp(what, "write") != 0;
        bool writes = strcmp(what, "read") != 0;
        refuse(reads ? SYS_process_vm_readv : SYS_process_vm_writev,
               writes ? SYS_process_vm_writev : SYS_process_vm_readv);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        reduce_and_broadcast(round);
    }
    return check_finish();
}
