// The vector clocks of emulated_races.h, and what -fsanitize=thread calls. Compiled without it.
#include "emulated_races.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace races {
namespace {
constexpr int kBarriers = 512;  // whose copies have clocks of their own

struct Access {
  int thread = -1;
  uint32_t clock = 0;
  void* place = nullptr;
  bool by_proxy = false;
};
struct Cell {
  Access write;
  std::vector<Access> reads;  // since then, the last of each thread
};
struct Thread {
  Seen seen;
  uint32_t fenced = 0;           // its writes before this clock are behind a fence
  std::vector<uint32_t> fences;  // its clocks behind each
  std::shared_ptr<const Seen> snapshot;
};
uint8_t* arena = nullptr;
int threads_of_cluster = 0;
std::vector<Cell> cells;
std::vector<Thread> threads;
std::map<uint32_t, int> barriers;
std::set<std::tuple<const char*, void*, void*>> found;
std::vector<std::string> told;
long checked = 0;
int left_out = -1, waits_left_out = -1, arrivals_left_out = -1;
bool fence_loads = false, fences_count = true;

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
  if (!found.emplace(kind, before.place, now.place).second) return;
  char text[160];
  snprintf(text, sizeof text, "%s %p %p threads %d and %d, byte %u", kind, before.place, now.place, before.thread,
           now.thread, byte);
  told.push_back(text);
}
bool fenced_between(int thread, uint32_t after, uint32_t seen) {
  const std::vector<uint32_t>& all = threads[thread].fences;
  const auto next = std::upper_bound(all.begin(), all.end(), after);
  return next != all.end() && *next <= seen;
}
void read(const Access& now, const Seen& seen, uint32_t byte, bool keep = true) {
  Cell& cell = cells[byte];
  const Access& write = cell.write;
  if (write.thread >= 0) {
    if (write.thread != now.thread && of(seen, write.thread) < write.clock) report("write-read", write, now, byte);
    if (now.by_proxy && !write.by_proxy && threads[write.thread].fenced <= write.clock) {
      report("unfenced", write, now, byte);
    }
  }
  if (!keep) return;
  for (Access& one : cell.reads) {
    if (one.thread == now.thread && one.by_proxy == now.by_proxy) {
      one = now;
      return;
    }
  }
  cell.reads.push_back(now);
}
void write(const Access& now, const Seen& seen, uint32_t byte) {
  Cell& cell = cells[byte];
  const Access& last = cell.write;
  if (last.thread >= 0 && last.thread != now.thread && of(seen, last.thread) < last.clock) {
    report("write-write", last, now, byte);
  }
  for (const Access& one : cell.reads) {
    if (one.thread != now.thread && of(seen, one.thread) < one.clock) report("read-write", one, now, byte);
    // Its thread's next fence is before what the copy's thread has seen of it.
    if (fence_loads && now.by_proxy && !one.by_proxy && !fenced_between(one.thread, one.clock, of(seen, one.thread))) {
      report("unfenced", one, now, byte);
    }
  }
  cell.reads.clear();
  cell.write = now;
}
void access(const void* shared, size_t bytes, bool writes, void* place) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(shared) - reinterpret_cast<uintptr_t>(arena);
  if (arena == nullptr || me < 0 || first >= cells.size()) return;
  ++checked;
  const Seen& seen = threads[me].seen;
  const Access now{me, of(seen, me), place};
  for (size_t i = 0; i < bytes; ++i) {
    writes ? write(now, seen, first + i) : read(now, seen, first + i);
  }
}
}  // namespace

int me = -1;

void begin(uint8_t* memory, size_t bytes, int count) {
  arena = memory, threads_of_cluster = count;
  threads.assign(count + kBarriers, Thread());
  for (int i = 0; i < count; ++i) tick(i);
  cells.assign(bytes, Cell());
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
  if (!fences_count) return;
  tick(me);
  threads[me].fenced = of(threads[me].seen, me);
  threads[me].fences.push_back(threads[me].fenced);
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
bool waits(int mbarrier) { return mbarrier != waits_left_out; }
bool arrives(int mbarrier) { return mbarrier != arrivals_left_out; }
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
  const Access now{me, of(threads[me].seen, me), __builtin_return_address(0), true};
  const uint32_t first = static_cast<const uint8_t*>(shared) - arena;
  for (size_t i = 0; i < bytes; ++i) read(now, *asked, first + i);
  memcpy(to, shared, bytes);
}
void load_for_product(void* to, const void* shared, size_t bytes, const Snapshot& asked, int by, bool counts) {
  ++checked;
  const Access now{by, of(threads[by].seen, by), __builtin_return_address(0), true};
  const uint32_t first = static_cast<const uint8_t*>(shared) - arena;
  for (size_t i = 0; i < bytes; ++i) read(now, *asked, first + i, counts);
  memcpy(to, shared, bytes);
}
namespace {
// Of a copy: each of its bytes is accessed once.
template <typename Visit>
void by_copy(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming,
             Visit visit) {
  ++checked;
  const int copy = barriers.try_emplace(barrier, threads_of_cluster + static_cast<int>(barriers.size())).first->second;
  if (copy >= static_cast<int>(threads.size())) {
    fprintf(stderr, "emulation: more than %d mbarriers\n", kBarriers);
    abort();
  }
  tick(copy);
  const Access now{copy, of(threads[copy].seen, copy), asked_at, true};
  const uint32_t first = static_cast<const uint8_t*>(shared) - arena;
  for (size_t i = 0; i < bytes; ++i) visit(now, first + i);
  join(coming, *asked);
  if (static_cast<int>(coming.clocks.size()) <= copy) coming.clocks.resize(copy + 1);
  coming.clocks[copy] = now.clock;
}
}  // namespace
void send(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming) {
  by_copy(shared, bytes, asked, asked_at, barrier, coming,
          [&](const Access& now, uint32_t byte) { read(now, *asked, byte); });
}
void land(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming) {
  by_copy(shared, bytes, asked, asked_at, barrier, coming,
          [&](const Access& now, uint32_t byte) { write(now, *asked, byte); });
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
// So for waits for the mbarrier of this number, counted from a block's first, and for arrivals at it.
void races_leave_out_waits(int mbarrier) { races::waits_left_out = mbarrier; }
void races_leave_out_arrivals(int mbarrier) { races::arrivals_left_out = mbarrier; }
// Whether a copy over what ordinary loads have read needs a fence; whether fences count.
void races_fences(bool of_loads, bool count) { races::fence_loads = of_loads, races::fences_count = count; }

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
