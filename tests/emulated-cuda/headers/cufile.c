/* The emulated cuFile by the prototypes of NVIDIA's header: what its Rust sources declare is the
 * same, or a compiler refuses it; a file is read both ways, so that arguments and members that
 * land in the wrong place show. */
#include <cuda.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cufile.h>

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileDriverClose_v2(void);
#undef cuFileDriverClose
CUfileError_t cuFileDriverClose(void);
#define cuFileDriverClose cuFileDriverClose_v2
long cuFileUseCount(void);
CUfileError_t cuFileGetVersion(int *);
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *);
CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t, size_t *);
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t, bool *);
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t, size_t);
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t, bool);
CUfileError_t cuFileHandleRegister(CUfileHandle_t *, CUfileDescr_t *);
void cuFileHandleDeregister(CUfileHandle_t);
CUfileError_t cuFileBufRegister(const void *, size_t, int);
CUfileError_t cuFileBufDeregister(const void *);
ssize_t cuFileRead(CUfileHandle_t, void *, size_t, off_t, off_t);
CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *, unsigned);
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t, unsigned, CUfileIOParams_t *, unsigned);
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t, unsigned, unsigned *,
                                     CUfileIOEvents_t *, struct timespec *);
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t);
void cuFileBatchIODestroy(CUfileBatchHandle_t);

#define AT(type, member, offset) _Static_assert(offsetof(type, member) == offset, #member)
_Static_assert(sizeof(CUfileError_t) == 8, "error");
_Static_assert(sizeof(CUfileDescr_t) == 24, "description");
_Static_assert(sizeof(CUfileDrvProps_t) == 56, "properties");
_Static_assert(sizeof(CUfileIOParams_t) == 64, "read");
_Static_assert(sizeof(CUfileIOEvents_t) == 24, "event");
AT(CUfileDescr_t, handle, 8);
AT(CUfileDescr_t, fs_ops, 16);
AT(CUfileDrvProps_t, nvfs.max_direct_io_size, 16);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_batch_io_size, 48);
AT(CUfileIOParams_t, u.batch.devPtr_base, 8);
AT(CUfileIOParams_t, u.batch.file_offset, 16);
AT(CUfileIOParams_t, u.batch.devPtr_offset, 24);
AT(CUfileIOParams_t, u.batch.size, 32);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);
_Static_assert(CU_FILE_DRIVER_NOT_INITIALIZED == 5001 && CU_FILE_DRIVER_CLOSING == 5006 &&
                 CU_FILE_IO_NOT_SUPPORTED == 5008 && CU_FILE_CUDA_DRIVER_ERROR == 5011 &&
                 CU_FILE_CUDA_POINTER_INVALID == 5012 &&
                 CU_FILE_CUDA_MEMORY_TYPE_INVALID == 5013 &&
                 CU_FILE_CUDA_POINTER_RANGE_ERROR == 5014 &&
                 CU_FILE_CUDA_CONTEXT_MISMATCH == 5015 &&
                 CU_FILE_INVALID_MAPPING_RANGE == 5017 && CU_FILE_INVALID_FILE_TYPE == 5018 &&
                 CU_FILE_INVALID_FILE_OPEN_FLAG == 5019 && CU_FILE_INVALID_VALUE == 5022 &&
                 CU_FILE_MEMORY_ALREADY_REGISTERED == 5023 &&
                 CU_FILE_DRIVER_ALREADY_OPEN == 5026 && CU_FILE_HANDLE_NOT_REGISTERED == 5027 &&
                 CU_FILE_HANDLE_ALREADY_REGISTERED == 5028 && CU_FILE_INTERNAL_ERROR == 5030 &&
                 CU_FILE_NVFS_SETUP_ERROR == 5033 &&
                 CU_FILE_GPU_MEMORY_PINNING_FAILED == 5036 && CU_FILE_BATCH_FULL == 5037 &&
                 CU_FILE_IO_MAX_ERROR == 5039,
               "codes");
_Static_assert(CUFILE_CANCELED == 0x8 && CUFILE_COMPLETE == 0x10 && CUFILE_FAILED == 0x40 &&
                 CUFILE_BATCH == 1 && CUFILE_READ == 0 && CU_FILE_HANDLE_TYPE_OPAQUE_FD == 1 &&
                 CU_FILE_NVME_SUPPORTED == 4 && CU_FILE_ALLOW_COMPAT_MODE == 1,
               "values");
_Static_assert(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB == 5 &&
                 CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB == 8 &&
                 CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE == 9 &&
                 CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE == 1 &&
                 CUFILE_PARAM_FORCE_COMPAT_MODE == 2,
               "parameters");

#define SIZE 20000
#define COUNT 10

static void check(long code, const char *what)
{
  if (code != 0) {
    fprintf(stderr, "%s: %ld\n", what, code);
    exit(1);
  }
}
#define CHECK(call) check((long)(call), #call)
#define CHECK_FILE(call) check((long)(call).err, #call)

static void batch(CUfileHandle_t file, CUdeviceptr target)
{
  CUfileIOParams_t reads[COUNT];
  CUfileIOEvents_t events[COUNT];
  CUfileBatchHandle_t handle;
  memset(reads, 0, sizeof reads);
  for (int i = 0; i < COUNT; i++) {
    reads[i].mode = CUFILE_BATCH;
    reads[i].u.batch.devPtr_base = (void *)target;
    reads[i].u.batch.file_offset = i * (SIZE / COUNT);
    reads[i].u.batch.devPtr_offset = i * (SIZE / COUNT);
    reads[i].u.batch.size = SIZE / COUNT;
    reads[i].fh = file;
    reads[i].opcode = CUFILE_READ;
    reads[i].cookie = &reads[i];
  }
  CHECK_FILE(cuFileBatchIOSetUp(&handle, COUNT));
  CHECK_FILE(cuFileBatchIOSubmit(handle, COUNT, reads, 0));
  unsigned done = 0;
  while (done < COUNT) {
    unsigned found = COUNT;
    struct timespec timeout = {1, 0};
    CHECK_FILE(cuFileBatchIOGetStatus(handle, 1, &found, events, &timeout));
    for (unsigned i = 0; i < found; i++) {
      check(events[i].status != CUFILE_COMPLETE || events[i].ret != SIZE / COUNT, "an event");
      check((CUfileIOParams_t *)events[i].cookie - reads >= COUNT, "a cookie");
    }
    done += found;
  }
  cuFileBatchIODestroy(handle);
}

int main(void)
{
  static unsigned char bytes[SIZE], back[SIZE];
  CUcontext context;
  CUdeviceptr target;
  CUfileDrvProps_t properties;
  CUfileDescr_t descr;
  CUfileHandle_t file;
  char path[] = "/tmp/cufile-XXXXXX";
  int version, fd = mkstemp(path);
  check(fd < 0, "a file");
  for (int i = 0; i < SIZE; i++)
    bytes[i] = (unsigned char)(i * 7 + i / 251);
  check(write(fd, bytes, SIZE) != SIZE, "writing");
  unlink(path);
  CHECK_FILE(cuFileGetVersion(&version));
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&target, SIZE));
  CHECK_FILE(cuFileDriverOpen());
  CHECK_FILE(cuFileDriverGetProperties(&properties));
  check(properties.nvfs.max_direct_io_size != 16384 || properties.max_batch_io_size != 128 ||
          !(properties.nvfs.dstatusflags >> CU_FILE_NVME_SUPPORTED & 1),
        "the properties");
  memset(&descr, 0xee, sizeof descr);
  descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
  descr.handle.fd = fd;
  descr.fs_ops = NULL;
  CHECK_FILE(cuFileHandleRegister(&file, &descr));
  CHECK_FILE(cuFileBufRegister((void *)target, SIZE, 0));
  batch(file, target);
  CHECK(cuMemcpyDtoH(back, target, SIZE));
  check(memcmp(bytes, back, SIZE), "what a batch brought");
  check(cuFileRead(file, (void *)target, 5000, 1234, 777) != 5000, "a read");
  CHECK(cuMemcpyDtoH(back, target, SIZE));
  check(memcmp(bytes + 1234, back + 777, 5000), "what a read brought");
  check(cuFileRead(file, (void *)target, SIZE + 1, 0, 0) != -CU_FILE_CUDA_POINTER_RANGE_ERROR,
        "a range that is too long");
  CHECK_FILE(cuFileBufDeregister((void *)target));
  cuFileHandleDeregister(file);
  CHECK_FILE(cuFileDriverClose());
  check(cuFileUseCount(), "the use count");
  printf("cuFile %d: reads are right\n", version);
  return 0;
}
