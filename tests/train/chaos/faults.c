/* System calls that fail, for tests: preloaded before the C library.

   A process arms it with the call that fails, and has the calls on a folder and all below
   it counted. Nothing fails, and nothing is counted, before that. `preloaded.py` builds it. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The order is also that of CALLS in preloaded.py. */
enum call { OPEN, READ, WRITE, SYNC, RENAME, MAKE, REMOVE, TRUNCATE, MAP, LIST, CALLS };

static char folder[PATH_MAX];
static size_t folder_length;
static int armed;
static enum call failing;
static long first;   /* which of these calls fails, from 1; 0 for none */
static int lasting;  /* whether all that follow fail, too */
static int error;    /* 0: the call does half of what it is asked for */
static atomic_long counts[CALLS];

#define NEXT(name) \
  static typeof(&name) next; \
  if (!next) next = (typeof(&name))dlsym(RTLD_NEXT, #name)

void faults_arm(const char *below, int call, long number, int and_later, int with) {
  snprintf(folder, sizeof folder, "%s", below);
  folder_length = strlen(folder);
  failing = call;
  first = number;
  lasting = and_later;
  error = with;
  armed = 1;
}

long faults_count(int call) { return counts[call]; }

static int is_below(const char *path) {
  char after = strncmp(path, folder, folder_length) == 0 ? path[folder_length] : 1;
  return after == 0 || after == '/';
}

static int is_below_at(int directory, const char *path) {
  char link[64], place[PATH_MAX];
  if (!armed || !path) return 0;
  if (path[0] == '/') return is_below(path);
  if (directory == AT_FDCWD) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
  ssize_t length = readlink(link, place, sizeof place - 1);
  if (length <= 0) return 0;
  place[length] = 0;
  return is_below(place);
}

static int is_below_open(int file) {
  char link[64], place[PATH_MAX];
  if (!armed || file < 3) return 0;
  int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, place, sizeof place - 1);
  errno = before;
  if (length <= 0) return 0;
  place[length] = 0;
  return is_below(place);
}

/* Whether this call is one that fails. */
static int fails(enum call call, int is_ours) {
  if (!is_ours) return 0;
  long number = ++counts[call];
  if (!first || call != failing) return 0;
  return number == first || (lasting && number > first);
}

#define FAIL_AS(call, is_ours, failed) \
  if (fails(call, is_ours)) { errno = error; return failed; }

/* A transfer that fails moves nothing or, without an error, half: that is no fault of the system. */
#define TRANSFER(call, file, size) \
  if (fails(call, is_below_open(file))) { \
    if (error) { errno = error; return -1; } \
    if (size > 1) size /= 2; \
  }

#define OPEN_WITH_MODE(name) \
  int name(const char *path, int flags, ...) { \
    NEXT(name); \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = va_arg(more, mode_t); \
    va_end(more); \
    FAIL_AS(OPEN, is_below_at(AT_FDCWD, path), -1); \
    return next(path, flags, mode); \
  }
OPEN_WITH_MODE(open)
OPEN_WITH_MODE(open64)

#define OPENAT_WITH_MODE(name) \
  int name(int directory, const char *path, int flags, ...) { \
    NEXT(name); \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = va_arg(more, mode_t); \
    va_end(more); \
    FAIL_AS(OPEN, is_below_at(directory, path), -1); \
    return next(directory, path, flags, mode); \
  }
OPENAT_WITH_MODE(openat)
OPENAT_WITH_MODE(openat64)

ssize_t read(int file, void *to, size_t size) {
  NEXT(read);
  TRANSFER(READ, file, size);
  return next(file, to, size);
}

ssize_t pread(int file, void *to, size_t size, off_t at) {
  NEXT(pread);
  TRANSFER(READ, file, size);
  return next(file, to, size, at);
}

ssize_t pread64(int file, void *to, size_t size, off64_t at) {
  NEXT(pread64);
  TRANSFER(READ, file, size);
  return next(file, to, size, at);
}

ssize_t write(int file, const void *from, size_t size) {
  NEXT(write);
  TRANSFER(WRITE, file, size);
  return next(file, from, size);
}

ssize_t pwrite(int file, const void *from, size_t size, off_t at) {
  NEXT(pwrite);
  TRANSFER(WRITE, file, size);
  return next(file, from, size, at);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
  NEXT(pwrite64);
  TRANSFER(WRITE, file, size);
  return next(file, from, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int number) {
  NEXT(writev);
  int is_failing = fails(WRITE, is_below_open(file));
  if (is_failing && error) { errno = error; return -1; }
  return next(file, parts, is_failing && number > 1 ? number / 2 : number);
}

int fsync(int file) {
  NEXT(fsync);
  FAIL_AS(SYNC, is_below_open(file), -1);
  return next(file);
}

int fdatasync(int file) {
  NEXT(fdatasync);
  FAIL_AS(SYNC, is_below_open(file), -1);
  return next(file);
}

int rename(const char *from, const char *to) {
  NEXT(rename);
  FAIL_AS(RENAME, is_below_at(AT_FDCWD, to), -1);
  return next(from, to);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
  NEXT(renameat);
  FAIL_AS(RENAME, is_below_at(to_directory, to), -1);
  return next(from_directory, from, to_directory, to);
}

int mkdir(const char *path, mode_t mode) {
  NEXT(mkdir);
  FAIL_AS(MAKE, is_below_at(AT_FDCWD, path), -1);
  return next(path, mode);
}

int unlink(const char *path) {
  NEXT(unlink);
  FAIL_AS(REMOVE, is_below_at(AT_FDCWD, path), -1);
  return next(path);
}

int unlinkat(int directory, const char *path, int flags) {
  NEXT(unlinkat);
  FAIL_AS(REMOVE, is_below_at(directory, path), -1);
  return next(directory, path, flags);
}

int rmdir(const char *path) {
  NEXT(rmdir);
  FAIL_AS(REMOVE, is_below_at(AT_FDCWD, path), -1);
  return next(path);
}

int ftruncate(int file, off_t size) {
  NEXT(ftruncate);
  FAIL_AS(TRUNCATE, is_below_open(file), -1);
  return next(file, size);
}

int ftruncate64(int file, off64_t size) {
  NEXT(ftruncate64);
  FAIL_AS(TRUNCATE, is_below_open(file), -1);
  return next(file, size);
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  NEXT(mmap);
  FAIL_AS(MAP, is_below_open(file), MAP_FAILED);
  return next(at, size, protection, flags, file, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset) {
  NEXT(mmap64);
  FAIL_AS(MAP, is_below_open(file), MAP_FAILED);
  return next(at, size, protection, flags, file, offset);
}

DIR *opendir(const char *path) {
  NEXT(opendir);
  FAIL_AS(LIST, is_below_at(AT_FDCWD, path), NULL);
  return next(path);
}

DIR *fdopendir(int file) {
  NEXT(fdopendir);
  FAIL_AS(LIST, is_below_open(file), NULL);
  return next(file);
}
