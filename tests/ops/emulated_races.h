// Whether accesses to the shared memory of emulated_block.h are ordered, by the rules of PTX: those of two threads are
// by barriers, mbarriers, __syncwarp and the barrier of a cluster, and by nothing else (no shuffle, no vote, no luck of
// the scheduler). A copy or a product that runs by itself comes after what its thread saw when it asked for it, and
// before what sees its mbarrier, or its wait. Products and copies also need a proxy fence behind ordinary stores, and
// copies, where a test says so, one between ordinary loads and the arrival that lets the copy begin.
//
// With EMULATED_RACES the sources are compiled with -fsanitize=thread, whose calls go to emulated_races.cpp instead of
// the compiler's library: it keeps a vector clock for each thread, and for each byte its last write and the reads since.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>
namespace races {
#ifdef EMULATED_RACES
struct Seen {
  std::vector<uint32_t> clocks;
};
using Snapshot = std::shared_ptr<const Seen>;
extern int me;  // the thread that runs, or -1
void begin(uint8_t* memory, size_t bytes, int threads);
void release(Seen& into);
void acquire(const Seen& from);
void fence();  // of the proxies
Snapshot snapshot();
Seen taken(Seen& coming);
bool follows(uint32_t named);  // whether this named barrier counts; a test may leave one out
bool waits(int mbarrier);      // so of waits for the mbarrier of this number, and of arrivals
bool arrives(int mbarrier);
void* here();
void load(void* to, const void* shared, size_t bytes);
void store(void* shared, const void* from, size_t bytes);
void load_async(void* to, const void* shared, size_t bytes, const Snapshot& asked);
// By a product: a read of the warp's first thread, as the whole warp waits for it. Without `counts` another lane has it.
void load_for_product(void* to, const void* shared, size_t bytes, const Snapshot& asked, int first, bool counts);
void put(void* shared, const void* from, size_t bytes);  // those of a copy that lands
// A copy to another block reads them.
void send(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming);
// A copy's bytes land, and count themselves at the mbarrier that has this address and these `coming`.
void land(const void* shared, size_t bytes, const Snapshot& asked, void* asked_at, uint32_t barrier, Seen& coming);
#else
struct Seen {};
struct Snapshot {};
inline int me;
inline void begin(uint8_t*, size_t, int) {}
inline void release(Seen&) {}
inline void acquire(const Seen&) {}
inline void fence() {}
inline Snapshot snapshot() { return {}; }
inline Seen taken(Seen&) { return {}; }
inline bool follows(uint32_t) { return true; }
inline bool waits(int) { return true; }
inline bool arrives(int) { return true; }
inline void* here() { return nullptr; }
inline void load(void* to, const void* shared, size_t bytes) { memcpy(to, shared, bytes); }
inline void store(void* shared, const void* from, size_t bytes) { memcpy(shared, from, bytes); }
inline void put(void* shared, const void* from, size_t bytes) { memcpy(shared, from, bytes); }
inline void load_async(void* to, const void* shared, size_t bytes, const Snapshot&) { memcpy(to, shared, bytes); }
inline void load_for_product(void* to, const void* shared, size_t bytes, const Snapshot&, int, bool) {
  memcpy(to, shared, bytes);
}
inline void send(const void*, size_t, const Snapshot&, void*, uint32_t, Seen&) {}
inline void land(const void*, size_t, const Snapshot&, void*, uint32_t, Seen&) {}
#endif
}  // namespace races
