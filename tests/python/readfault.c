/* Preloaded into a process whose reading is to go wrong, with one file: reads that touch a range of its bytes fail, or
 * all of them come back short or interrupted. Which file is told by /proc/self/fd at each call, so that copies of a
 * descriptor count too. Our reads are pread64's, those of GDAL's own drivers fread's.
 *
 *   readfault_set(path, who, from, to, error, times)   who: 1 pread64, 2 fread, 3 both; times 0: always
 *   readfault_slow(most, interrupt, microseconds)      of pread64: bytes at once, every second call EINTR, a wait */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char file[4096];
static long who, from, to, error_code, times, most, interrupt, wait_us;
static atomic_long calls, faults, threads;
static _Thread_local long mine;

void readfault_set(const char *path, long w, long a, long b, long e, long t)
{
    file[0] = 0; /* nothing is met while the rest changes */
    who = w; from = a; to = b; error_code = e; times = t;
    calls = faults = 0;
    snprintf(file, sizeof file, "%s", path);
}

void readfault_slow(long m, long i, long us) { most = m; interrupt = i; wait_us = us; }

long readfault_calls(void) { return calls; }
long readfault_faults(void) { return faults; }
long readfault_threads(void) { return threads; }

static int ours(int fd)
{
    char link[64], path[4200];
    if (!file[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    return n > 0 && (path[n] = 0, strcmp(path, file) == 0);
}

/* 1 if a read of these bytes is to fail. */
static int bad(int kind, long at, size_t len)
{
    if (!(who & kind) || at >= to || at + (long)len <= from) return 0;
    if (++faults > times && times) return 0;
    errno = (int)error_code;
    return 1;
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t at)
{
    if (ours(fd)) {
        calls++;
        if (!mine++) threads++;
        if (wait_us) usleep(wait_us);
        if (bad(1, at, len)) return -1;
        if (interrupt && mine % 2) {
            faults++;
            errno = EINTR;
            return -1;
        }
        if (most && len > (size_t)most) {
            faults++;
            len = most;
        }
    }
    return syscall(SYS_pread64, fd, buf, len, at);
}

ssize_t pread(int fd, void *buf, size_t len, off_t at) { return pread64(fd, buf, len, at); }

size_t fread(void *buf, size_t size, size_t count, FILE *f)
{
    static size_t (*real)(void *, size_t, size_t, FILE *);
    if (!real) real = (size_t(*)(void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fread");
    if (ours(fileno(f)) && bad(2, ftello(f), size * count)) return 0;
    return real(buf, size, count, f);
}
