/* Preloaded into a server: its wall clock is the system's plus what the file CLOCK_SHIFT holds, 8 bytes of
   microseconds. libfaketime cannot be used: with jemalloc, which Redis is built with, it hangs at the start. So this
   calls nothing that allocates or resolves symbols. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t shift(void) {
    static volatile int64_t *shared;
    if (!shared) {
        const char *path = getenv("CLOCK_SHIFT");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        /* Not shifting would look like a server that withstands it. */
        if (map == MAP_FAILED) abort();
        close(file);
        shared = map;
    }
    return *shared;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t micros = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + shift();
        now->tv_nsec = micros % 1000000 * 1000 + now->tv_nsec % 1000;
        now->tv_sec = micros / 1000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
