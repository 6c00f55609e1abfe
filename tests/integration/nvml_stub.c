/* A libnvidia-ml.so.1 for tests: just the calls that the agent makes, answered from a text file, so that the
 * bindings run their real path. The file ($NVML_STUB) is read anew when it changed; write another one and rename it
 * over the old one. One `key value` a line. A field that is not there is NOT_SUPPORTED.
 *
 *   init             return code of init; while it is not 0, nothing is initialized
 *   count            GPUs, numbered from 0; read at init, as the driver's library makes its list then
 *   <gpu>.<field>    fail (return code of all calls on that GPU), hang (they block while it is there, and make
 *                    $NVML_STUB.hung), name, uuid, used, total (bytes), util, memutil (%), temp, power, power_limit
 *                    (mW), sm_clock, sm_clock_max,
 *                    memory_clock (MHz), throttle, ecc_corrected, ecc_uncorrected, pcie_rx, pcie_tx (KB/s, blocks
 *                    20 ms), pcie_rx_bytes, pcie_tx_bytes, nvlink_rx_kib, nvlink_tx_kib (counters), xid (an event each
 *                    time it changes), mig (slices)
 *   <gpu>.mig<slice>.uuid, used, total
 *
 * Built with -DOLD_NAMES it lacks the newer name of the throttle call, with -DNO_THROTTLE both; with -DOLD_DRIVER also
 * all that came later than memory, name and temperature.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };
enum { GPUS = 8, SLICES = 4, XID = 8, CLOCK_MEMORY = 2, UNSIGNED_LONG_LONG = 3 };

struct gpu { int index, slice; };
struct memory { unsigned long long total, free, used; };

static struct gpu gpus[GPUS], slices[GPUS][SLICES];
static unsigned long long told_xid[GPUS];
static int initialized, event_set;
static unsigned int count_at_init;
static char text[1 << 16];

/* The whole file, after a newline. */
static const char *answers(void) {
    static struct stat last;
    struct stat now;
    const char *path = getenv("NVML_STUB");
    FILE *file;
    if (!path || stat(path, &now)) return "";
    if (now.st_ino == last.st_ino && now.st_size == last.st_size && now.st_mtim.tv_sec == last.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == last.st_mtim.tv_nsec)
        return text;
    file = fopen(path, "r");
    if (!file) return "";
    text[0] = '\n';
    text[1 + fread(text + 1, 1, sizeof text - 2, file)] = 0;
    fclose(file);
    last = now;
    return text;
}

static int look_up(const char *key, char *value, size_t size) {
    char line[80];
    const char *found;
    snprintf(line, sizeof line, "\n%s ", key);
    found = strstr(answers(), line);
    if (!found) return 0;
    found += strlen(line);
    snprintf(value, size, "%.*s", (int)strcspn(found, "\n"), found);
    return 1;
}

static unsigned long long number(const char *key) {
    char value[96];
    return look_up(key, value, sizeof value) ? strtoull(value, NULL, 0) : 0;
}

static int text_of(struct gpu *gpu, const char *field, char *value, size_t size) {
    char key[64], code[16];
    if (!initialized) return UNINITIALIZED;
    snprintf(key, sizeof key, "%d.hang", gpu->index);
    while (look_up(key, code, sizeof code)) {
        char path[256];
        snprintf(path, sizeof path, "%s.hung", getenv("NVML_STUB"));
        fclose(fopen(path, "w"));
        usleep(5000);
    }
    snprintf(key, sizeof key, "%d.fail", gpu->index);
    if (look_up(key, code, sizeof code)) return atoi(code);
    if (gpu->slice >= 0) snprintf(key, sizeof key, "%d.mig%d.%s", gpu->index, gpu->slice, field);
    else snprintf(key, sizeof key, "%d.%s", gpu->index, field);
    return look_up(key, value, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number_of(struct gpu *gpu, const char *field, unsigned long long *out) {
    char value[96];
    int code = text_of(gpu, field, value, sizeof value);
    if (code == SUCCESS) *out = strtoull(value, NULL, 0);
    return code;
}

static int small_of(struct gpu *gpu, const char *field, unsigned int *out) {
    unsigned long long value = 0;
    int code = number_of(gpu, field, &value);
    *out = (unsigned int)value;
    return code;
}

int nvmlInitWithFlags(unsigned int flags) {
    int code = (int)number("init");
    (void)flags;
    for (int i = 0; i < GPUS; i++) {
        gpus[i] = (struct gpu){i, -1};
        for (int j = 0; j < SLICES; j++) slices[i][j] = (struct gpu){i, j};
    }
    initialized = code == SUCCESS;
    count_at_init = (unsigned int)number("count");
    return code;
}

int nvmlShutdown(void) { initialized = 0; return SUCCESS; }

const char *nvmlErrorString(int code) { (void)code; return "stub"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    if (number("init") != SUCCESS) initialized = 0;
    if (!initialized) return UNINITIALIZED;
    *count = count_at_init;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct gpu **gpu) {
    if (index >= GPUS || index >= count_at_init) return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned int size) { return text_of(gpu, "name", name, size); }
int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned int size) { return text_of(gpu, "uuid", uuid, size); }

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory) {
    int code = number_of(gpu, "total", &memory->total);
    if (code == SUCCESS) code = number_of(gpu, "used", &memory->used);
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned int *celsius) {
    (void)sensor;
    return small_of(gpu, "temp", celsius);
}

#ifndef NO_THROTTLE
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *reasons) {
    return number_of(gpu, "throttle", reasons);
}
#ifndef OLD_NAMES
int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *reasons) {
    return number_of(gpu, "throttle", reasons);
}
#endif
#endif

#ifndef OLD_DRIVER
int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned int *rates) {
    int code = small_of(gpu, "util", &rates[0]);
    return code == SUCCESS ? small_of(gpu, "memutil", &rates[1]) : code;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned int *mw) { return small_of(gpu, "power", mw); }
int nvmlDeviceGetEnforcedPowerLimit(struct gpu *gpu, unsigned int *mw) { return small_of(gpu, "power_limit", mw); }

int nvmlDeviceGetClockInfo(struct gpu *gpu, int clock, unsigned int *mhz) {
    return small_of(gpu, clock == CLOCK_MEMORY ? "memory_clock" : "sm_clock", mhz);
}

int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, int clock, unsigned int *mhz) {
    return small_of(gpu, clock == CLOCK_MEMORY ? "memory_clock_max" : "sm_clock_max", mhz);
}

int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int uncorrected, int counter, unsigned long long *count) {
    (void)counter;
    return number_of(gpu, uncorrected ? "ecc_uncorrected" : "ecc_corrected", count);
}

int nvmlDeviceGetPcieThroughput(struct gpu *gpu, int received, unsigned int *kb) {
    int code = small_of(gpu, received ? "pcie_rx" : "pcie_tx", kb);
    if (code == SUCCESS) usleep(20000);
    return code;
}

struct field_value {
    unsigned int field, scope;
    long long timestamp, latency;
    int type, code;
    unsigned long long value;
};

int nvmlDeviceGetFieldValues(struct gpu *gpu, int count, struct field_value *values) {
    for (int i = 0; i < count; i++) {
        int all_links = values[i].scope == 0xFFFFFFFFu;
        const char *field = values[i].field == 138 && all_links   ? "nvlink_tx_kib"
                            : values[i].field == 139 && all_links ? "nvlink_rx_kib"
                            : values[i].field == 197              ? "pcie_tx_bytes"
                            : values[i].field == 198              ? "pcie_rx_bytes"
                                                                  : "no such field";
        values[i].type = UNSIGNED_LONG_LONG;
        values[i].code = number_of(gpu, field, &values[i].value);
    }
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned int *current, unsigned int *pending) {
    unsigned int count = 0;
    int code = small_of(gpu, "mig", &count);
    *current = *pending = count > 0;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(struct gpu *gpu, unsigned int *count) { (void)gpu; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *gpu, unsigned int index, struct gpu **slice) {
    unsigned int count = 0;
    int code = small_of(gpu, "mig", &count);
    if (code != SUCCESS || index >= count || index >= SLICES) return NOT_FOUND;
    *slice = &slices[gpu->index][index];
    return SUCCESS;
}

struct event { struct gpu *gpu; unsigned long long type, data; unsigned int instance, compute; };

int nvmlEventSetCreate(void **set) { *set = &event_set; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long types, void *set) {
    (void)gpu; (void)set;
    return types == XID ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int timeout_ms) {
    (void)set; (void)timeout_ms;
    for (unsigned int i = 0; i < count_at_init; i++) {
        unsigned long long xid = 0;
        if (number_of(&gpus[i], "xid", &xid) != SUCCESS || xid == told_xid[i]) continue;
        told_xid[i] = xid;
        *event = (struct event){&gpus[i], XID, xid, 0xFFFFFFFFu, 0xFFFFFFFFu};
        return SUCCESS;
    }
    return TIMEOUT;
}
#endif
