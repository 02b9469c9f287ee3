/* A ring of io_uring for floor.c, and what both need. */
#pragma once

#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FRAME_BYTES = 72, CLIENTS_MAX = 64 };

/* How often a process that waits yields before it sleeps. */
static int yields;
/* Completions' work waits until the process enters the ring. */
static bool is_deferred;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void need(bool is_done, const char *what) {
    if (!is_done) {
        fail(what);
    }
}

/*
 * A ring of io_uring that receives one socket's datagrams. The kernel takes each frame's memory from
 * `buffers`, and reap() gives it back. One request serves for all frames, unless it fails.
 */
enum { ENTRIES = CLIENTS_MAX, BUFFERS = 2 * CLIENTS_MAX, TO_RECEIVE = 1, TO_SEND = 2 };

static struct {
    int number, socket;
    unsigned unsubmitted, sq_mask, cq_mask, *sq_tail, *sq_flags, *cq_head, *cq_tail;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *completions;
    struct io_uring_buf_ring *buffers;
} ring;
static char ring_frames[BUFFERS][FRAME_BYTES];

static struct io_uring_sqe *push_request(int opcode, int socket, int kind) {
    unsigned tail = *ring.sq_tail;
    struct io_uring_sqe *request = &ring.requests[tail & ring.sq_mask];
    *request = (struct io_uring_sqe){.opcode = (__u8)opcode, .fd = socket, .user_data = (__u64)kind};
    *ring.sq_tail = tail + 1; /* read by this thread only, in io_uring_enter */
    ring.unsubmitted++;
    return request;
}

static void push_receive(void) {
    struct io_uring_sqe *request = push_request(IORING_OP_RECV, ring.socket, TO_RECEIVE);
    request->ioprio = IORING_RECV_MULTISHOT;
    request->flags = IOSQE_BUFFER_SELECT;
}

static void push_send(int socket, const void *frame, const struct sockaddr_in *target) {
    struct io_uring_sqe *request = push_request(IORING_OP_SEND, socket, TO_SEND);
    request->flags = IOSQE_CQE_SKIP_SUCCESS;
    request->addr = (__u64)(uintptr_t)frame;
    request->len = FRAME_BYTES;
    request->addr2 = (__u64)(uintptr_t)target;
    request->addr_len = target == NULL ? 0 : sizeof *target;
}

/* Submits what was pushed, does the completions' work, and may sleep until there is one. */
static void enter_ring(bool is_to_sleep) {
    long submitted = syscall(SYS_io_uring_enter, ring.number, ring.unsubmitted, is_to_sleep ? 1 : 0,
                             IORING_ENTER_GETEVENTS, NULL, 0);
    need(submitted >= 0 || errno == EINTR, "io_uring_enter");
    ring.unsubmitted -= submitted > 0 ? (unsigned)submitted : 0;
}

static void give_buffer(unsigned short index) {
    unsigned short tail = ring.buffers->tail;
    struct io_uring_buf *buffer = &ring.buffers->bufs[tail % BUFFERS];
    buffer->addr = (__u64)(uintptr_t)ring_frames[index];
    buffer->len = FRAME_BYTES;
    buffer->bid = index;
    __atomic_store_n(&ring.buffers->tail, (unsigned short)(tail + 1), __ATOMIC_RELEASE);
}

static void *map(size_t bytes, int flags, int file, off_t at) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, file, at);
    need(memory != MAP_FAILED, "mmap");
    return memory;
}

static void open_queues(void) {
    struct io_uring_params it = {.flags = IORING_SETUP_SINGLE_ISSUER};
    it.flags |= is_deferred ? IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG
                            : IORING_SETUP_COOP_TASKRUN;
    ring.number = (int)syscall(SYS_io_uring_setup, ENTRIES, &it);
    need(ring.number >= 0, "io_uring_setup");
    need(it.features & IORING_FEAT_SINGLE_MMAP, "both queues in one mapping");
    size_t submissions = it.sq_off.array + it.sq_entries * sizeof(unsigned);
    size_t completions = it.cq_off.cqes + it.cq_entries * sizeof(struct io_uring_cqe);
    char *queues = map(submissions > completions ? submissions : completions, MAP_SHARED,
                       ring.number, IORING_OFF_SQ_RING);
    ring.requests = map(it.sq_entries * sizeof(struct io_uring_sqe), MAP_SHARED, ring.number,
                        IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(queues + it.sq_off.tail);
    ring.sq_flags = (unsigned *)(queues + it.sq_off.flags);
    ring.cq_head = (unsigned *)(queues + it.cq_off.head);
    ring.cq_tail = (unsigned *)(queues + it.cq_off.tail);
    ring.sq_mask = it.sq_entries - 1;
    ring.cq_mask = it.cq_entries - 1;
    ring.completions = (struct io_uring_cqe *)(queues + it.cq_off.cqes);
    for (unsigned at = 0; at < it.sq_entries; at++) {
        ((unsigned *)(queues + it.sq_off.array))[at] = at;
    }
}

static void open_buffers(void) {
    ring.buffers = map(BUFFERS * sizeof(struct io_uring_buf), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_reg registration = {.ring_addr = (__u64)(uintptr_t)ring.buffers,
                                            .ring_entries = BUFFERS};
    need(syscall(SYS_io_uring_register, ring.number, IORING_REGISTER_PBUF_RING, &registration, 1) == 0,
         "IORING_REGISTER_PBUF_RING");
    for (int index = 0; index < BUFFERS; index++) {
        give_buffer((unsigned short)index);
    }
}

static void open_ring(int socket) {
    open_queues();
    open_buffers();
    ring.socket = socket;
    push_receive();
    enter_ring(false);
}

/* Submits what is left, and lets go of the socket: at exit alone the kernel does that some time later, and
 * the next server would find its port taken. */
static void close_ring(void) {
    struct io_uring_sync_cancel_reg request = {.addr = TO_RECEIVE, .fd = -1, .timeout = {-1, -1}};
    if (ring.number > 0) {
        enter_ring(false);
        need(syscall(SYS_io_uring_register, ring.number, IORING_REGISTER_SYNC_CANCEL, &request, 1) == 0,
             "IORING_REGISTER_SYNC_CANCEL");
        enter_ring(false);
    }
}

/* Takes what has completed; returns how many frames that were. */
static int reap(void) {
    unsigned head = *ring.cq_head, tail = __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE);
    int got = 0;
    for (; head != tail; head++) {
        struct io_uring_cqe it = ring.completions[head & ring.cq_mask];
        if (it.res < 0 && !(it.user_data == TO_RECEIVE && it.res == -ENOBUFS)) {
            errno = -it.res;
            fail(it.user_data == TO_RECEIVE ? "receiving by the ring" : "sending by the ring");
        }
        if (it.flags & IORING_CQE_F_BUFFER) {
            give_buffer((unsigned short)(it.flags >> IORING_CQE_BUFFER_SHIFT));
            got += it.res == FRAME_BYTES;
        }
        if (it.user_data == TO_RECEIVE && !(it.flags & IORING_CQE_F_MORE)) {
            push_receive();
        }
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    return got;
}

/* Waits for a frame, and returns how many have come. Looks into memory alone, and enters the kernel to
 * yield, to submit, to sleep, or as deferred work waits there. The server too sleeps until one frame comes,
 * not all of them: deferred, one piece of work stands for many frames, and it would never be woken. */
static int receive_by_ring(void) {
    int got = reap();
    for (int polls = 0; got == 0; polls++) {
        unsigned flags = __atomic_load_n(ring.sq_flags, __ATOMIC_RELAXED);
        if (polls >= yields || ring.unsubmitted > 0 || flags & IORING_SQ_TASKRUN) {
            enter_ring(polls >= yields);
        } else {
            sched_yield();
        }
        got = reap();
    }
    return got;
}
