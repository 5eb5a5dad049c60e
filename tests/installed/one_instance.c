/* Links the library and lets GDAL load the plugin: tells whether they are one instance.
 *
 *     one_instance <raster> <expected number of instances>
 *
 * Opens the raster by GDAL and wraps the dataset, which only works within one instance, and
 * counts the copies that are mapped. Exit code: 0 if they are as many as expected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gdal.h>
#include <gpugtiff.h>

/* How many files that are our library, by inode, are mapped with code in them. */
static int instances(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], inodes[16][32];
    int count = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char rights[8], inode[32], path[3072] = "";
        if (sscanf(line, "%*s %7s %*s %*s %31s %3071[^\n]", rights, inode, path) != 3)
            continue;
        const char *name = strrchr(path, '/');
        if (rights[2] != 'x' || name == NULL || strstr(name, "libgpugtiff") == NULL)
            continue;
        int known = 0;
        while (known < count && strcmp(inodes[known], inode) != 0)
            known++;
        if (known == count && count < 16)
            strcpy(inodes[count++], inode);
    }
    if (maps != NULL)
        fclose(maps);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fputs("usage: one_instance <raster> <expected number of instances>\n", stderr), 2;
    int expected = atoi(argv[2]);
    /* Linked and used before GDAL looks for plugins. */
    printf("one_instance: library %s\n", gpugtiff_version());
    GDALAllRegister();
    const char *const drivers[] = {"GPUGTiff", NULL};
    GDALDatasetH dataset = GDALOpenEx(argv[1], GDAL_OF_RASTER, drivers, NULL, NULL);
    if (dataset == NULL)
        return fputs("one_instance: GDAL has no driver GPUGTiff that opens it\n", stderr), 1;

    gpugtiff_raster *raster = NULL;
    gpugtiff_result wrapped = gpugtiff_raster_wrap(dataset, &raster);
    int found = instances();
    printf("one_instance: %d instance(s), wrap: %s\n", found, gpugtiff_result_name(wrapped));
    gpugtiff_raster_free(raster);
    GDALClose(dataset);
    GDALDestroyDriverManager();
    return found == expected && wrapped == (found == 1 ? GPUGTIFF_OK : GPUGTIFF_FOREIGN_DATASET) ? 0 : 1;
}
