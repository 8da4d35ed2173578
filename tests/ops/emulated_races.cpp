// The vector clocks of emulated_races.h, and what -fsanitize=thread calls. Compiled without it.
#include "emulated_races.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace races {
namespace {
constexpr uint32_t kBytes = 10 * 256 * 1024;  // of the arena
constexpr int kBarriers = 512;                // whose copies have clocks of their own

struct Access {
  int thread = -1;
  uint32_t clock = 0;
  void* place = nullptr;
};
struct Cell {
  Access write;
  bool by_proxy = false;
  std::vector<Access> reads;  // since then, the last of each thread
};
struct Thread {
  Seen seen;
  uint32_t fenced = 0;  // its writes before this clock are behind a fence
  std::shared_ptr<const Seen> snapshot;
};
uint8_t* arena = nullptr;
int threads_of_cluster = 0;
std::vector<Cell> cells;
std::vector<Thread> threads;
std::map<uint32_t, int> barriers;
std::map<std::string, long> found;
std::vector<std::string> told;
long checked = 0;
int left_out = -1;

uint32_t of(const Seen& seen, int thread) {
  return thread < static_cast<int>(seen.clocks.size()) ? seen.clocks[thread] : 0;
}
void join(Seen& into, const Seen& from) {
  if (into.clocks.size() < from.clocks.size()) into.clocks.resize(from.clocks.size());
  for (size_t i = 0; i < from.clocks.size(); ++i) into.clocks[i] = std::max(into.clocks[i], from.clocks[i]);
}
void tick(int thread) {
  std::vector<uint32_t>& clocks = threads[thread].seen.clocks;
  if (static_cast<int>(clocks.size()) <= thread) clocks.resize(thread + 1);
  ++clocks[thread];
  threads[thread].snapshot.reset();
}
void report(const char* kind, const Access& before, const Access& now, uint32_t byte) {
  char text[160];
  snprintf(text, sizeof text, "%s %p %p", kind, before.place, now.place);
  if (found[text]++ > 0) return;
  snprintf(text + strlen(text), 80, " threads %d and %d, byte %u", before.thread, now.thread, byte);
  told.push_back(text);
}
void read(const Access& now, const Seen& seen, uint32_t byte, bool by_proxy) {
  Cell& cell = cells[byte];
  const Access& write = cell.write;
  if (write.thread >= 0) {
    if (write.thread != now.thread && of(seen, write.thread) < write.clock) report("write-read", write, now, byte);
    if (by_proxy && !cell.by_proxy && threads[write.thread].fenced <= write.clock) report("unfenced", write, now, byte);
  }
  for (Access& one : cell.reads) {
    if (one.thread == now.thread) {
      one = now;
      return;
    }
  }
  cell.reads.push_back(now);
}
void write(const Access& now, const Seen& seen, uint32_t byte, bool by_proxy) {
  Cell& cell = cells[byte];
  const Access& last = cell.write;
  if (last.thread >= 0 && last.thread != now.thread && of(seen, last.thread) < last.clock) {
    report("write-write", last, now, byte);
  }
  for (const Access& one : cell.reads) {
    if (one.thread != now.thread && of(seen, one.thread) < one.clock) report("read-write", one, now, byte);
  }
  cell.reads.clear();
  cell.write = now, cell.by_proxy = by_proxy;
}
void access(const void* shared, size_t bytes, bool writes, void* place) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(shared) - reinterpret_cast<uintptr_t>(arena);
  if (arena == nullptr || me < 0 || first >= kBytes) return;
  ++checked;
  const Seen& seen = threads[me].seen;
  const Access now{me, of(seen, me), place};
  for (size_t i = 0; i < bytes; ++i) {
    writes ? write(now, seen, first + i, false) : read(now, seen, first + i, false);
  }
}
}  // namespace

int me = -1;

void begin(uint8_t* memory, int count) {
  arena = memory, threads_of_cluster = count;
  threads.assign(count + kBarriers, Thread());
  for (int i = 0; i < count; ++i) tick(i);
  cells.assign(kBytes, Cell());
  barriers.clear();
}
void release(Seen& into) {
  join(into, threads[me].seen);
  tick(me);
}
void acquire(const Seen& from) {
  join(threads[me].seen, from);
  threads[me].snapshot.reset();
}
void fence() {
  tick(me);
  threads[me].fenced = of(threads[me].seen, me);
}
Snapshot snapshot() {
  Thread& mine = threads[me];
  if (mine.snapshot == nullptr) mine.snapshot = std::make_shared<const Seen>(mine.seen);
  return mine.snapshot;
}
Seen taken(Seen& coming) {
  Seen all;
  std::swap(all, coming);
  return all;
}
bool follows(uint32_t named) { return static_cast<int>(named) != left_out; }
void* here() { return __builtin_return_address(0); }
void load(void* to, const void* shared, size_t bytes) {
  access(shared, bytes, false, __builtin_return_address(0));
  memcpy(to, shared, bytes);
}
void store(void* shared, const void* from, size_t bytes) {
  access(shared, bytes, true, __builtin_return_address(0));
  memcpy(shared, from, bytes);
}
void put(void* shared, const void* from, size_t bytes) { memcpy(shared, from, bytes); }
void load_async(void* to, const void* shared, size_t bytes, const Snapshot& asked) {
  ++checked;
  const Access now{me, of(threads[me].seen, me), __builtin_return_address(0)};
  const uint32_t first = static_cast<const uint8_t*>(shared) - arena;
  for (size_t i = 0; i < bytes; ++i) read(now, *asked, first + i, true);
  memcpy(to, shared, bytes);
}
void land(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming) {
  ++checked;
  const int copy = barriers.try_emplace(barrier, threads_of_cluster + static_cast<int>(barriers.size())).first->second;
  if (copy >= static_cast<int>(threads.size())) {
    fprintf(stderr, "emulation: more than %d mbarriers\n", kBarriers);
    abort();
  }
  tick(copy);
  const Access now{copy, of(threads[copy].seen, copy), asked_at};
  const uint32_t first = static_cast<const uint8_t*>(shared) - arena;
  for (size_t i = 0; i < bytes; ++i) write(now, *asked, first + i, true);
  join(coming, *asked);
  if (static_cast<int>(coming.clocks.size()) <= copy) coming.clocks.resize(copy + 1);
  coming.clocks[copy] = now.clock;
}
}  // namespace races

extern "C" {
// How many accesses were checked since the last call.
long races_checked() { return std::exchange(races::checked, 0); }
// The next place that was found, "KIND ADDRESS ADDRESS threads T and T, byte N"; nullptr behind the last.
const char* races_found() {
  static std::string last;
  if (races::told.empty()) {
    races::found.clear();
    return nullptr;
  }
  last = races::told.back();
  races::told.pop_back();
  return last.c_str();
}

// Takes this named barrier for none from now on; -1: all are barriers.
void races_leave_out(int named) { races::left_out = named; }

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#define ACCESSES(bytes)                                                                                       \
  void __tsan_read##bytes(void* p) { races::access(p, bytes, false, __builtin_return_address(0)); }           \
  void __tsan_write##bytes(void* p) { races::access(p, bytes, true, __builtin_return_address(0)); }           \
  void __tsan_unaligned_read##bytes(void* p) { races::access(p, bytes, false, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(void* p) { races::access(p, bytes, true, __builtin_return_address(0)); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
int __tsan_atomic32_fetch_add(volatile int* p, int value, int) {
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}
void __tsan_read_range(void* p, size_t bytes) { races::access(p, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { races::access(p, bytes, true, __builtin_return_address(0)); }
}
