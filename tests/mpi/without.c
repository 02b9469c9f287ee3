/*
 * Runs a program for which some system calls fail: with EPERM, as where a container runtime denies them, or with ENOSYS,
 * as in kernels that are too old for them. The filter stays across exec.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} known[] = {
    {"pidfd_open", SYS_pidfd_open},
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"recvmmsg", SYS_recvmmsg},
    {"sendmmsg", SYS_sendmmsg},
};
enum { KNOWN = sizeof known / sizeof *known };

int main(int argc, char **argv) {
    struct sock_filter filter[2 * KNOWN + 2];
    size_t length = 0;
    if (argc < 4 || (strcmp(argv[1], "EPERM") != 0 && strcmp(argv[1], "ENOSYS") != 0)) {
        fprintf(stderr, "usage: without EPERM|ENOSYS CALL[,CALL...] PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    unsigned error = strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *name = strtok(argv[2], ","); name != NULL; name = strtok(NULL, ",")) {
        size_t call = 0;
        while (call < KNOWN && strcmp(known[call].name, name) != 0) {
            call++;
        }
        if (call == KNOWN || length + 3 > sizeof filter / sizeof *filter) {
            fprintf(stderr, "without: %s is unknown, or named twice\n", name);
            return 2;
        }
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, known[call].number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)length, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("without: prctl");
        return 1;
    }
    execvp(argv[3], &argv[3]);
    perror(argv[3]);
    return 127;
}
