/* A libgdal of a few lines: what the loader asks of the GDAL that loads it, and nothing else.
 * VERSION is GDAL's number. What is said by CPLDebug() and CPLError() is printed. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *GDALVersionInfo(const char *what)
{
    return strcmp(what, "VERSION_NUM") == 0 ? VERSION : "";
}

void CPLDebug(const char *category, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("debug %s: ", category);
    vprintf(format, list);
    puts("");
    va_end(list);
}

void CPLError(int class, int number, const char *format, ...)
{
    (void)format;
    printf("error %d %d\n", class, number);
}

/* As GDAL loads a plugin. Returns 0 if there is one. */
int foreign_register(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY);
    void (*function)(void) = NULL;
    if (library != NULL)
        *(void **)&function = dlsym(library, "GDALRegister_GPUGTiff");
    if (function == NULL)
        return 1;
    function();
    puts("registered");
    return 0;
}
