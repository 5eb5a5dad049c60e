/* Lets GDAL load its plugins, without its built-in drivers, and tells what that took (CPU time, in
 * milliseconds), whether GPUGTiff is registered, and what is mapped.
 *
 * The method has no name in C; GDAL's C++ headers would take seconds to compile. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <gdal.h>

void *GetGDALDriverManager(void);
void auto_load_drivers(void *) __asm__("_ZN17GDALDriverManager15AutoLoadDriversEv");

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(void)
{
    void *drivers = GetGDALDriverManager();
    double start = now();
    auto_load_drivers(drivers);
    printf("milliseconds %.3f\n", now() - start);
    printf("driver %d\n", GDALGetDriverByName("GPUGTiff") != NULL);
    char line[8192];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (strchr(line, '/') != NULL)
            printf("mapped %s", strchr(line, '/'));
    return 0;
}
