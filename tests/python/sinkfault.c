/* Preloaded into a process whose writing is to go wrong: counts what it does to the files of one folder and fails the
 * n-th call, or kills the process at the n-th byte. Which files: those below SINKFAULT_DIR, told by /proc/self/fd at
 * each call, so that copies of a descriptor and unlinked files count too.
 *
 *   sinkfault_set(folder, only, fail_call, error, sticky, kill_byte, flush)   from ctypes, or the same as environment
 *
 * only: 0 everything in the folder, 1 the target (SINKFAULT_TARGET), 2 everything but the target.
 * SINKFAULT_NO_TMPFILE=1: no file of the folder can be opened without a name. SINKFAULT_LINK=errno,
 * SINKFAULT_RENAME=errno: no file can be linked, or renamed.
 * SINKFAULT_HOLES=1: writes of 64 KiB or more leave a hole instead (for files that are too large for a test).
 * SINKFAULT_LOSE=n: from the n-th call on, vectors of the target are said to be written and are not.
 * SINKFAULT_LOG=file: a line per call, "n operation target|other bytes". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096], target[4096];
static long only, fail_call, error_code, sticky, kill_byte, flush_at_kill, holes, lose, no_tmpfile, link_error, rename_error;
static int log_fd = -1, ready;
static atomic_long calls, bytes, faults;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static long number(const char *name) { const char *v = getenv(name); return v ? atol(v) : 0; }

void sinkfault_set(const char *dir, const char *file, long o, long n, long e, long s, long k, long f)
{
    snprintf(folder, sizeof folder, "%s", dir);
    snprintf(target, sizeof target, "%s", file);
    only = o; fail_call = n; error_code = e; sticky = s; kill_byte = k; flush_at_kill = f;
    calls = bytes = faults = 0;
    ready = folder[0] != 0;
}

long sinkfault_calls(void) { return calls; }
long sinkfault_bytes(void) { return bytes; }
long sinkfault_faults(void) { return faults; }

void sinkfault_log(const char *path)
{
    log_fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
}

__attribute__((constructor)) static void start(void)
{
    const char *dir = getenv("SINKFAULT_DIR"), *file = getenv("SINKFAULT_TARGET");
    holes = number("SINKFAULT_HOLES");
    lose = number("SINKFAULT_LOSE");
    no_tmpfile = number("SINKFAULT_NO_TMPFILE");
    link_error = number("SINKFAULT_LINK");
    rename_error = number("SINKFAULT_RENAME");
    if (getenv("SINKFAULT_LOG")) sinkfault_log(getenv("SINKFAULT_LOG"));
    if (dir)
        sinkfault_set(dir, file ? file : "", number("SINKFAULT_ONLY"), number("SINKFAULT_FAIL"),
                      number("SINKFAULT_ERRNO"), number("SINKFAULT_STICKY"), number("SINKFAULT_KILL"),
                      number("SINKFAULT_FLUSH"));
}

/* 0: not ours, 1: the target, 2: another file of the folder (an unlinked one too). Only what is open for writing. */
static int whose(int fd)
{
    if (!ready || fd < 0) return 0;
    char link[64], path[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    long mode = syscall(SYS_fcntl, fd, F_GETFL);
    if (mode < 0 || (mode & O_ACCMODE) == O_RDONLY) return 0;
    if (strcmp(path, target) == 0) return 1;
    /* A copy has no name while it is written; the scratch file has none either, and nobody else may read it. */
    struct stat found;
    int unnamed = path[strlen(folder)] == '/' && path[strlen(folder) + 1] == '#';
    return unnamed && fstat(fd, &found) == 0 && (found.st_mode & 044) ? 1 : 2;
}

/* Counts a call; 1 if it is to fail. */
static int counted(const char *what, int who, size_t len)
{
    if (!who || (only && only != who)) return 0;
    long n = ++calls;
    if (log_fd >= 0) {
        char line[100];
        int k = snprintf(line, sizeof line, "%ld %s %s %zu\n", n, what, who == 1 ? "target" : "other", len);
        syscall(SYS_write, log_fd, line, k);
    }
    if (fail_call && (n == fail_call || (sticky && n > fail_call))) {
        faults++;
        errno = (int)error_code;
        return 1;
    }
    return 0;
}

/* How many of `len` bytes may still be written before the kill; len if there is none. */
static size_t allowed(int who, size_t len)
{
    if (!who || (only && only != who)) return len;
    long before = atomic_fetch_add(&bytes, (long)len);
    if (!kill_byte || before + (long)len < kill_byte) return len;
    return before >= kill_byte ? 0 : (size_t)(kill_byte - before);
}

static int to_kill(int who) { return who && (!only || only == who) && kill_byte && bytes >= kill_byte; }
static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); for (;;) pause(); }

/* Leaves a hole where `len` bytes would go; the position moves as by a write where there is one (at < 0). */
static int hole(int fd, size_t len, off64_t at)
{
    off64_t end = at < 0 ? syscall(SYS_lseek, fd, (long)len, SEEK_CUR) : at + (off64_t)len;
    long now = syscall(SYS_lseek, fd, 0, SEEK_CUR), size = syscall(SYS_lseek, fd, 0, SEEK_END);
    syscall(SYS_lseek, fd, now, SEEK_SET);
    return size < end ? (int)syscall(SYS_ftruncate, fd, end) : 0;
}

ssize_t write(int fd, const void *buf, size_t len)
{
    REAL(write);
    int who = whose(fd);
    if (counted("write", who, len)) return -1;
    if (holes && who == 1 && len >= 65536) return hole(fd, len, -1) ? -1 : (ssize_t)len;
    size_t n = allowed(who, len);
    if (!to_kill(who)) return real(fd, buf, len);
    if (n) real(fd, buf, n);
    die();
    return -1;
}

static ssize_t at_offset(int fd, const void *buf, size_t len, off64_t at)
{
    int who = whose(fd);
    if (counted("write", who, len)) return -1;
    if (holes && who == 1 && len >= 65536) return hole(fd, len, at) ? -1 : (ssize_t)len;
    size_t n = allowed(who, len);
    if (!to_kill(who)) return syscall(SYS_pwrite64, fd, buf, len, at);
    if (n) syscall(SYS_pwrite64, fd, buf, n, at);
    die();
    return -1;
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t at) { return at_offset(fd, buf, len, at); }
ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t at) { return at_offset(fd, buf, len, at); }

/* One call, whatever the number of buffers; cut at the byte where the kill comes. */
static ssize_t vector(int fd, const struct iovec *v, int n, off64_t at)
{
    int who = whose(fd);
    size_t len = 0, done = 0;
    for (int i = 0; i < n; i++) len += v[i].iov_len;
    if (counted("write", who, len)) return -1;
    if (lose && who == 1 && calls >= lose) return (ssize_t)len;
    if (holes && who == 1 && len >= 65536) return hole(fd, len, at) ? -1 : (ssize_t)len;
    size_t may = allowed(who, len);
    if (!to_kill(who)) return at < 0 ? syscall(SYS_writev, fd, v, n) : syscall(SYS_pwritev, fd, v, n, at, 0);
    for (int i = 0; i < n && done < may; i++) {
        size_t k = v[i].iov_len < may - done ? v[i].iov_len : may - done;
        if (at < 0) syscall(SYS_write, fd, v[i].iov_base, k);
        else syscall(SYS_pwrite64, fd, v[i].iov_base, k, at + (off64_t)done);
        done += k;
    }
    die();
    return -1;
}

ssize_t writev(int fd, const struct iovec *v, int n) { return vector(fd, v, n, -1); }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) { return vector(fd, v, n, at); }
ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) { return vector(fd, v, n, at); }

/* stdio writes through libc's own calls, which nothing can stand before: it is met here. */
size_t fwrite(const void *buf, size_t size, size_t count, FILE *f)
{
    REAL(fwrite);
    int who = ready ? whose(fileno(f)) : 0;
    size_t len = size * count;
    if (!who || !len) return real(buf, size, count, f);
    if (counted("write", who, len)) return 0;
    if (holes && who == 1 && len >= 65536) {
        if (fseeko64(f, (off64_t)len, SEEK_CUR)) return 0;
        fflush(f);
        return syscall(SYS_ftruncate, fileno(f), ftello64(f)) ? 0 : count;
    }
    size_t n = allowed(who, len);
    if (!to_kill(who)) return real(buf, size, count, f);
    if (n) real(buf, 1, n, f);
    if (flush_at_kill) syscall(SYS_fsync, fflush(f) ? -1 : fileno(f));
    die();
    return 0;
}

int fflush(FILE *f)
{
    REAL(fflush);
    if (f && counted("flush", whose(fileno(f)), 0)) return EOF;
    return real(f);
}

int fclose(FILE *f)
{
    REAL(fclose);
    int failed = f && counted("close", whose(fileno(f)), 0), e = errno;
    int r = real(f);
    if (!failed) return r;
    errno = e;
    return EOF;
}

int close(int fd)
{
    REAL(close);
    int failed = counted("close", whose(fd), 0), e = errno;
    int r = real(fd);
    if (!failed) return r;
    errno = e;
    return -1;
}

#define SEEK_CALL(name, kind, TYPE) \
    kind name(TYPE f, off64_t at, int whence) \
    { \
        static kind (*real)(TYPE, off64_t, int); \
        if (!real) real = (kind(*)(TYPE, off64_t, int))dlsym(RTLD_NEXT, #name); \
        if (counted("seek", whose(HANDLE(f)), 0)) return -1; \
        return real(f, at, whence); \
    }
#define HANDLE(f) (f)
SEEK_CALL(lseek64, off64_t, int)
SEEK_CALL(lseek, off_t, int)
#undef HANDLE
#define HANDLE(f) fileno(f)
SEEK_CALL(fseeko64, int, FILE *)
#undef HANDLE

#define FD_CALL(name, what, ARGS, PASS) \
    int name ARGS \
    { \
        static int(*real) ARGS; \
        if (!real) real = (int(*) ARGS)dlsym(RTLD_NEXT, #name); \
        if (counted(what, whose(fd), 0)) return -1; \
        return real PASS; \
    }
FD_CALL(fsync, "sync", (int fd), (fd))
FD_CALL(fdatasync, "sync", (int fd), (fd))
FD_CALL(ftruncate, "truncate", (int fd, off_t n), (fd, n))
FD_CALL(ftruncate64, "truncate", (int fd, off64_t n), (fd, n))

/* Files without names, and how they get one. */
#define OPEN_CALL(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0; \
        va_end(more); \
        if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) { \
            errno = EOPNOTSUPP; \
            return -1; \
        } \
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode); \
    }
OPEN_CALL(open)
OPEN_CALL(open64)

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    if (!link_error) return (int)syscall(SYS_linkat, from, old, to, new, flags);
    errno = (int)link_error;
    return -1;
}

int rename(const char *old, const char *new)
{
    if (!rename_error) return (int)syscall(SYS_rename, old, new);
    errno = (int)rename_error;
    return -1;
}
