/* A library that answers as NVIDIA's NVML does, for two GPUs: what nvidia-ml-py calls, with the types of nvml.h.
 * GPU 0 draws 300 W by its power and by its energy counter, GPU 1 has no energy counter and is at its power cap. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NOT_SUPPORTED = 3, INVALID = 2 };
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
static int gpus[2] = {0, 1};
#define INDEX(device) (*(int *)(device))

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned int size) { snprintf(out, size, "580.00"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned int *out) { *out = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **out) {
    if (index > 1) return INVALID;
    *out = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(void *d, char *out, unsigned int size) { snprintf(out, size, "Stand-in %d", INDEX(d)); return OK; }
int nvmlDeviceGetUUID(void *d, char *out, unsigned int size) { snprintf(out, size, "GPU-%d", INDEX(d)); return OK; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *out) {
    out->total = 80ull << 30;
    out->used = (10ull + INDEX(d)) << 30;
    out->free = out->total - out->used;
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *d, utilization_t *out) { out->gpu = 90; out->memory = 40 + INDEX(d); return OK; }
int nvmlDeviceGetPowerUsage(void *d, unsigned int *out) { *out = INDEX(d) ? 700000 : 300000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out) {
    if (INDEX(d)) return NOT_SUPPORTED;
    *out = (unsigned long long)(seconds() * 300.0 * 1e3);
    return OK;
}
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned int *out) { (void)d; *out = kind == 1 ? 1980 : 3201; return OK; }
int nvmlDeviceGetMaxClockInfo(void *d, int kind, unsigned int *out) { (void)d; (void)kind; *out = 1980; return OK; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned int *out) { (void)sensor; *out = 60 + INDEX(d); return OK; }
int nvmlDeviceGetTemperatureV(void *d, void *out) { (void)d; (void)out; return NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out) { *out = INDEX(d) ? 4 : 0; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *out) { *out = INDEX(d) ? 4 : 0; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned int *out) { (void)d; *out = 700000; return OK; }
