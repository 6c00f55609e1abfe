/* A libnvidia-ml.so.1 for tests: just the calls that the agent makes, answered from a text file, so that the
 * bindings run their real path. The file ($NVML_STUB) is read at each call: one `key value` a line, keys
 * `init` (return code of init), `count`, and `<gpu>.<field>` with field fail (return code of all calls on that
 * GPU), name, uuid, used, total, temp, throttle. A field that is not there is NOT_SUPPORTED.
 *
 * Built with -DOLD_NAMES it lacks the newer name of the throttle call, with -DNO_THROTTLE it lacks both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
enum { GPUS = 8 };

struct gpu { int index; };
struct memory { unsigned long long total, free, used; };

static struct gpu gpus[GPUS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static int initialized;

static int look_up(const char *key, char *value, size_t size) {
    char line[256], format[80];
    int found = 0;
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    snprintf(format, sizeof format, "%s ", key);
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, format, strlen(format))) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(value, size, "%s", line + strlen(format));
        found = 1;
    }
    fclose(file);
    return found;
}

static unsigned long long number(const char *key) {
    char value[96];
    return look_up(key, value, sizeof value) ? strtoull(value, NULL, 0) : 0;
}

static int text_of(struct gpu *gpu, const char *field, char *value, size_t size) {
    char key[64], code[16];
    if (!initialized) return UNINITIALIZED;
    snprintf(key, sizeof key, "%d.fail", gpu->index);
    if (look_up(key, code, sizeof code)) return atoi(code);
    snprintf(key, sizeof key, "%d.%s", gpu->index, field);
    return look_up(key, value, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number_of(struct gpu *gpu, const char *field, unsigned long long *out) {
    char value[96];
    int code = text_of(gpu, field, value, sizeof value);
    if (code == SUCCESS) *out = strtoull(value, NULL, 0);
    return code;
}

int nvmlInitWithFlags(unsigned int flags) {
    int code = (int)number("init");
    (void)flags;
    initialized = code == SUCCESS;
    return code;
}

const char *nvmlErrorString(int code) { (void)code; return "stub"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    if (number("init") != SUCCESS) initialized = 0;
    if (!initialized) return UNINITIALIZED;
    *count = (unsigned int)number("count");
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct gpu **gpu) {
    if (index >= GPUS || index >= number("count")) return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned int size) {
    return text_of(gpu, "name", name, size);
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned int size) {
    return text_of(gpu, "uuid", uuid, size);
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory) {
    int code = number_of(gpu, "total", &memory->total);
    if (code == SUCCESS) code = number_of(gpu, "used", &memory->used);
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned int *celsius) {
    unsigned long long value = 0;
    int code = number_of(gpu, "temp", &value);
    (void)sensor;
    *celsius = (unsigned int)value;
    return code;
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
