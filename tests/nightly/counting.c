// Preloaded into a command and its children: counts their calls, and sends the command a signal at one of them.
//   COUNTING_FILE=/a/file  COUNTING_FOLDER=/a/folder  LD_PRELOAD=counting.so perfsuite ...
// The file is 64 bytes: four numbers that the library counts (files, clock, 1 once the signal is sent, the process)
// and three that the caller sets (which of the first two, at which count, which signal).
//
// "files" are calls on files below the folder. "clock" are readings of the clock and waits behind the first of them, so
// that what happens while Python starts does not count. Both follow the command's work, however busy the machine is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct Shared {
  _Atomic long counts[2];  // files, clock
  _Atomic long sent;
  _Atomic long process;
  long which, at, number;
  long unused;
};

static struct Shared* shared;
static const char* folder;
static __thread int inside;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char* file = getenv("COUNTING_FILE");
  folder = getenv("COUNTING_FOLDER");
  if (!file || !folder) return;
  inside = 1;
  int descriptor = NEXT(open)(file, O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) {
    void* place = mmap(NULL, sizeof(struct Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (place != MAP_FAILED) {
      long none = 0;
      shared = place;
      // The first process is the command; its children find its number.
      atomic_compare_exchange_strong(&shared->process, &none, (long)getpid());
    }
  }
  inside = 0;
}

static void count(int which) {
  if (atomic_fetch_add(&shared->counts[which], 1) + 1 == shared->at && which == shared->which && shared->number) {
    atomic_store(&shared->sent, 1);
    kill((pid_t)shared->process, (int)shared->number);
  }
}

static void on_path(int at, const char* path) {
  if (!shared || inside || !path) return;
  inside = 1;
  char whole[2 * PATH_MAX];
  if (path[0] != '/') {
    char link[64], here[PATH_MAX] = "";
    if (at == AT_FDCWD) {
      if (!getcwd(here, sizeof here)) here[0] = 0;
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", at);
      ssize_t length = readlink(link, here, sizeof here - 1);
      here[length < 0 ? 0 : length] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    path = whole;
  }
  if (!strncmp(path, folder, strlen(folder))) count(0);
  inside = 0;
}

static void on_descriptor(int descriptor) {
  if (!shared || inside) return;
  on_path(descriptor, ".");
}

static void on_clock(void) {
  if (!shared || inside || !shared->counts[0]) return;
  inside = 1;
  count(1);
  inside = 0;
}

// Counted behind the call: a signal finds the file open, written, renamed or removed, and the next step not yet taken.
#define COUNTED(type, name, declared, passed, counted) \
  type name declared {                                 \
    type result = NEXT(name) passed;                   \
    int error = errno;                                 \
    counted;                                           \
    errno = error;                                     \
    return result;                                     \
  }

#define OPENING(name, declared, where, path, ...)      \
  int name declared {                                  \
    mode_t mode = 0;                                   \
    if (flags & (O_CREAT | O_TMPFILE)) {               \
      va_list more;                                    \
      va_start(more, flags);                           \
      mode = va_arg(more, mode_t);                     \
      va_end(more);                                    \
    }                                                  \
    int result = NEXT(name)(__VA_ARGS__, flags, mode); \
    int error = errno;                                 \
    on_path(where, path);                              \
    errno = error;                                     \
    return result;                                     \
  }

OPENING(open, (const char* path, int flags, ...), AT_FDCWD, path, path)
OPENING(open64, (const char* path, int flags, ...), AT_FDCWD, path, path)
OPENING(openat, (int at, const char* path, int flags, ...), at, path, at, path)
OPENING(openat64, (int at, const char* path, int flags, ...), at, path, at, path)

COUNTED(FILE*, fopen, (const char* path, const char* mode), (path, mode), on_path(AT_FDCWD, path))
COUNTED(FILE*, fopen64, (const char* path, const char* mode), (path, mode), on_path(AT_FDCWD, path))
COUNTED(ssize_t, read, (int of, void* to, size_t size), (of, to, size), on_descriptor(of))
COUNTED(ssize_t, write, (int to, const void* from, size_t size), (to, from, size), on_descriptor(to))
COUNTED(ssize_t, pwrite, (int to, const void* from, size_t size, off_t at), (to, from, size, at), on_descriptor(to))
COUNTED(ssize_t, pwrite64, (int to, const void* from, size_t size, off64_t at), (to, from, size, at), on_descriptor(to))
COUNTED(int, ftruncate, (int of, off_t size), (of, size), on_descriptor(of))
COUNTED(int, ftruncate64, (int of, off64_t size), (of, size), on_descriptor(of))
COUNTED(int, fsync, (int of), (of), on_descriptor(of))
COUNTED(int, fdatasync, (int of), (of), on_descriptor(of))
COUNTED(int, flock, (int of, int how), (of, how), on_descriptor(of))
COUNTED(int, rename, (const char* from, const char* to), (from, to), on_path(AT_FDCWD, to))
COUNTED(int, renameat, (int at, const char* from, int to_at, const char* to), (at, from, to_at, to), on_path(to_at, to))
COUNTED(int, link, (const char* from, const char* to), (from, to), on_path(AT_FDCWD, to))
COUNTED(int, symlink, (const char* from, const char* to), (from, to), on_path(AT_FDCWD, to))
COUNTED(int, unlink, (const char* path), (path), on_path(AT_FDCWD, path))
COUNTED(int, unlinkat, (int at, const char* path, int flags), (at, path, flags), on_path(at, path))
COUNTED(int, mkdir, (const char* path, mode_t mode), (path, mode), on_path(AT_FDCWD, path))
COUNTED(int, rmdir, (const char* path), (path), on_path(AT_FDCWD, path))
COUNTED(int, clock_gettime, (clockid_t clock, struct timespec* now), (clock, now), on_clock())
COUNTED(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec* end, struct timespec* left),
        (clock, flags, end, left), on_clock())
