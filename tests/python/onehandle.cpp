/* A VSI file system with what a plugin must have and no more: one handle a file at a time, one thread, no
 * ReadMultiRange. It counts what is opened, and what it had to refuse. "/vsionehandle/PATH" is the file PATH. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpl_vsi.h"

enum { MOST = 64 };

typedef struct
{
    FILE *fp;
    int slot;
    int eof;
} Handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char open_names[MOST][512];
static long opened, refused, strangers, closed;
static pthread_t owner;

static void look(void)
{
    if (!pthread_equal(owner, pthread_self()))
        __atomic_add_fetch(&strangers, 1, __ATOMIC_SEQ_CST);
}

static int on_stat(void *data, const char *name, VSIStatBufL *buf, int flags)
{
    (void)data;
    (void)flags;
    look();
    return stat64(name, buf);
}

static int on_unlink(void *data, const char *name)
{
    (void)data;
    look();
    return unlink(name);
}

static void *on_open(void *data, const char *name, const char *access)
{
    (void)data;
    look();
    pthread_mutex_lock(&lock);
    int slot = -1;
    for (int i = 0; i < MOST; i++)
    {
        if (strcmp(open_names[i], name) == 0)
        {
            refused++;
            pthread_mutex_unlock(&lock);
            errno = EBUSY;
            return NULL;
        }
        if (slot < 0 && open_names[i][0] == 0)
            slot = i;
    }
    FILE *fp = slot < 0 ? NULL : fopen(name, access);
    if (fp)
    {
        opened++;
        snprintf(open_names[slot], sizeof(open_names[slot]), "%s", name);
    }
    pthread_mutex_unlock(&lock);
    if (!fp)
        return NULL;
    Handle *handle = static_cast<Handle *>(calloc(1, sizeof(Handle)));
    handle->fp = fp;
    handle->slot = slot;
    return handle;
}

static vsi_l_offset on_tell(void *file)
{
    look();
    return (vsi_l_offset)ftello(((Handle *)file)->fp);
}

static int on_seek(void *file, vsi_l_offset offset, int whence)
{
    look();
    ((Handle *)file)->eof = 0;
    return fseeko(((Handle *)file)->fp, (off_t)offset, whence);
}

static size_t on_read(void *file, void *buffer, size_t size, size_t count)
{
    look();
    size_t got = fread(buffer, size, count, ((Handle *)file)->fp);
    ((Handle *)file)->eof = got < count;
    return got;
}

static int on_eof(void *file)
{
    look();
    return ((Handle *)file)->eof;
}

static size_t on_write(void *file, const void *buffer, size_t size, size_t count)
{
    look();
    return fwrite(buffer, size, count, ((Handle *)file)->fp);
}

static int on_flush(void *file)
{
    look();
    return fflush(((Handle *)file)->fp);
}

static int on_truncate(void *file, vsi_l_offset size)
{
    look();
    fflush(((Handle *)file)->fp);
    return ftruncate(fileno(((Handle *)file)->fp), (off_t)size);
}

static int on_close(void *file)
{
    Handle *handle = static_cast<Handle *>(file);
    look();
    pthread_mutex_lock(&lock);
    open_names[handle->slot][0] = 0;
    closed++;
    pthread_mutex_unlock(&lock);
    int result = fclose(handle->fp);
    free(handle);
    return result;
}

/* The calling thread is the one that may use the files. */
extern "C" int onehandle_install(const char *prefix)
{
    VSIFilesystemPluginCallbacksStruct *cb = VSIAllocFilesystemPluginCallbacksStruct();
    owner = pthread_self();
    cb->stat = on_stat;
    cb->unlink = on_unlink;
    cb->open = on_open;
    cb->tell = on_tell;
    cb->seek = on_seek;
    cb->read = on_read;
    cb->eof = on_eof;
    cb->write = on_write;
    cb->flush = on_flush;
    cb->truncate = on_truncate;
    cb->close = on_close;
    /* GDAL 3.6 keeps the pointer. */
    int result = VSIInstallPluginHandler(strdup(prefix), cb);
    VSIFreeFilesystemPluginCallbacksStruct(cb);
    return result;
}

/* Opened, closed, refused, calls from other threads; all zero again afterwards. */
extern "C" void onehandle_take(long *counts)
{
    counts[0] = opened;
    counts[1] = closed;
    counts[2] = refused;
    counts[3] = strangers;
    opened = closed = refused = strangers = 0;
}
