// Preloaded into a command: one call of the C library fails, for files below one folder.
//   UNWILLING_CALL=flock|rename|fsync  UNWILLING_FOLDER=/a/folder  LD_PRELOAD=unwilling.so perfsuite ...
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char* call, const char* path) {
    const char* chosen = getenv("UNWILLING_CALL");
    const char* folder = getenv("UNWILLING_FOLDER");
    if (!chosen || !folder || strcmp(chosen, call) || !path) return 0;
    char whole[PATH_MAX];
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        if (snprintf(whole, sizeof whole, "%s/%s", here, path) >= (int)sizeof whole) return 0;
        path = whole;
    }
    return !strncmp(path, folder, strlen(folder));
}

static int fails_at(const char* call, int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, #name))

int flock(int descriptor, int operation) {
    if (fails_at("flock", descriptor)) return errno = ENOLCK, -1;
    return NEXT(int (*)(int, int), flock)(descriptor, operation);
}

int fsync(int descriptor) {
    if (fails_at("fsync", descriptor)) return errno = EIO, -1;
    return NEXT(int (*)(int), fsync)(descriptor);
}

int fdatasync(int descriptor) {
    if (fails_at("fsync", descriptor)) return errno = EIO, -1;
    return NEXT(int (*)(int), fdatasync)(descriptor);
}

int rename(const char* from, const char* to) {
    if (fails("rename", from)) return errno = EIO, -1;
    return NEXT(int (*)(const char*, const char*), rename)(from, to);
}

int renameat(int at, const char* from, int to_at, const char* to) {
    if (fails("rename", from)) return errno = EIO, -1;
    return NEXT(int (*)(int, const char*, int, const char*), renameat)(at, from, to_at, to);
}
