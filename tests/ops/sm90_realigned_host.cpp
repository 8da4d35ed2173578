// How the Hopper attention kernel realigns rows that begin anywhere (eight_rows.cuh, realigned_tiles.cuh), compiled for
// the host: a warp's lanes one after the other, tensors and workspace in this program's memory.
// test_attention_realigned.py empties the headers of ptx/.
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {
int faults;
template <typename... Args>
void fault(const char* format, Args... args) {
  if (faults++ < 5) std::fprintf(stderr, format, args...);
}
struct {
  unsigned x;
} threadIdx, gridDim, blockIdx;

alignas(256) unsigned char memory[1 << 17];  // shared
constexpr uint32_t base = 1 << 16;
void* __cvta_shared_to_generic(uint32_t shared) { return memory + (shared - base); }
uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
uint32_t min(uint32_t a, int b) { return min(a, static_cast<uint32_t>(b)); }
uint32_t min(int a, uint32_t b) { return min(static_cast<uint32_t>(a), b); }
template <typename T>
T __shfl_sync(unsigned, T value, int) {
  return value;
}
bool __all_sync(unsigned, bool mine) { return mine; }
int __popc(unsigned) { return 0; }
uint32_t __ballot_sync(unsigned, bool) { return 0; }
void __syncwarp() {}
void __nanosleep(unsigned) {}
uint32_t atomicAdd(uint32_t* at, uint32_t value) { return *at += value; }

// What all lanes of a warp do together, matrices of 8 rows of 16 bytes: the addresses are told by lanes in a first
// turn.
struct Together {
  int lane = 0;
  bool telling = false;
  size_t call = 0;
  std::vector<std::array<uint32_t, 32>> addresses;
  std::vector<std::array<std::array<uint32_t, 4>, 32>> words;  // to be stored
  std::vector<int> counts;

  template <typename Work>
  void turn(bool tells, const Work& work) {
    telling = tells;
    for (lane = 0; lane < 32; ++lane) {
      call = 0;
      work(lane);
    }
  }
  void tell(uint32_t address, int count) {
    if (address % 16 != 0) fault("a matrix's row at %u\n", address);
    if (call == addresses.size()) addresses.emplace_back(), words.emplace_back(), counts.push_back(count);
    addresses[call][lane] = address;
    ++call;
  }
  // Of the transposed matrix j: element (lane / 4, lane % 4 * 2), and the next.
  uint32_t load(int j) const {
    uint32_t word = 0;
    for (int i = 0; i < 2; ++i) {
      uint16_t element;
      std::memcpy(&element, memory + (addresses[call][8 * j + lane % 4 * 2 + i] - base) + lane / 4 * 2, 2);
      word |= static_cast<uint32_t>(element) << 16 * i;
    }
    return word;
  }
  void store() {
    for (size_t c = 0; c < addresses.size(); ++c) {
      for (int j = 0; j < counts[c]; ++j) {
        for (int r = 0; r < 8; ++r) {
          for (int t = 0; t < 4; ++t)
            std::memcpy(memory + (addresses[c][8 * j + r] - base) + t * 4, &words[c][4 * r + t][j], 4);
        }
      }
    }
  }
} together;

uintptr_t tensor_begin, tensor_end;
void reads(uintptr_t from, size_t bytes) {
  if (from + 15 < tensor_begin || from + bytes > tensor_end) fault("reads what is not the tensor's\n");
}
}  // namespace

#define __CUDACC__
#include "attention/sm90/instance.h"
#undef __CUDACC__

namespace cuda_llm_ops {
namespace ptx {
void cp_async_cg_16(uint32_t shared, const void* global, int bytes) {
  if (bytes > 0) reads(reinterpret_cast<uintptr_t>(global), static_cast<size_t>(bytes));
  std::memset(memory + (shared - base), 0, 16);
  std::memcpy(memory + (shared - base), global, static_cast<size_t>(bytes));
}
void cp_async_cg_16(uint32_t shared, const void* global) { cp_async_cg_16(shared, global, 16); }
void cp_async_commit_group() {}
template <int>
void cp_async_wait_group() {}
void fence_proxy_async_global() {}
void fence_proxy_async_shared() {}
void mbarrier_arrive(uint32_t) {}
void mbarrier_arrive_expect_tx(uint32_t, uint32_t) {}
void mbarrier_wait(uint32_t, uint32_t) {}
bool mbarrier_test_wait(uint32_t, uint32_t) { return true; }
void bulk_load(uint32_t, const void*, uint32_t, uint32_t) {}
void bulk_prefetch(const void*, uint32_t) {}
void bar_sync(uint32_t, uint32_t) {}
uint32_t atomic_load_shared(uint32_t) { return 0; }
int load_shared(uint32_t) { return 0; }
uint64_t load_shared_64(uint32_t) { return 0; }
template <typename T>
void store_shared(uint32_t address, T value) {
  std::memcpy(memory + (address - base), &value, sizeof(value));
}
void store_shared_zeros(uint32_t address) { std::memset(memory + (address - base), 0, 16); }
template <size_t N>
void ldmatrix(uint32_t* const (&words)[N], uint32_t address) {
  if (together.telling) return together.tell(address, N);
  for (size_t j = 0; j < N; ++j) *words[j] = together.load(static_cast<int>(j));
  ++together.call;
}
void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) { ldmatrix({&r[0], &r[1], &r[2], &r[3]}, address); }
void ldmatrix_x2_trans(uint32_t& a, uint32_t& b, uint32_t address) { ldmatrix({&a, &b}, address); }
void ldmatrix_x1_trans(uint32_t& a, uint32_t address) { ldmatrix({&a}, address); }
template <size_t N>
void stmatrix(const uint32_t (&words)[N], uint32_t address) {
  together.tell(address, N);
  for (size_t j = 0; j < N; ++j) together.words[together.call - 1][together.lane][j] = words[j];
}
void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { stmatrix({a, b, c, d}, address); }
void stmatrix_x2(uint32_t address, uint32_t a, uint32_t b) { stmatrix({a, b}, address); }
void stmatrix_x1(uint32_t address, uint32_t a) { stmatrix({a}, address); }
void prefetch_l2(const void*) {}
void red_release_add(uint32_t*, uint32_t) {}
uint32_t load_acquire(const uint32_t* at) { return *at; }
uint32_t atomic_add_acq_rel(uint32_t* at, uint32_t) { return *at; }
uint32_t shared_address(const void*) { return base; }
uint32_t cluster_ctarank() { return 0; }
int opaque(int value) { return value; }
int fresh_tid_x() { return 0; }
}  // namespace ptx

}  // namespace cuda_llm_ops

#include "numeric.cuh"

namespace cuda_llm_ops::cuda {
template <>
uint32_t halve_pair<int>(uint32_t pair) {
  return pair ^ 0x80008000u;
}  // seen by its sign
}  // namespace cuda_llm_ops::cuda

#include "attention/sm90/realigned_tiles.cuh"

namespace {

using namespace cuda_llm_ops::cuda::sm90::flash;

// As in realigned.cuh.
template <int HeadDim, int Least, int BlockN>
struct Config {
  using T = int;
  static constexpr int block_m = 128, block_n = BlockN, consumers = 2, stages = 2, q_slots = 2, cluster = 1;
  static constexpr int chunks = HeadDim / 8, kv_bytes = chunks * BlockN * 16, least_head_dim = Least;
  static constexpr int raw_chunks = chunks + 1, raw_pitch = (raw_chunks | 1) * 16, raw_bytes = 8 * raw_pitch;
  static constexpr bool ones_column = HeadDim % 16 != 0, overlap = chunks % 2 == 1;
  static constexpr uint32_t one = 0x3c00;
};

uint16_t element(int tensor, int head, int row, int column) {
  uint32_t x = tensor * 7919u + head * 104729u + row * 15485863u + column * 32452843u;
  x = (x ^ x >> 13) * 2654435761u;
  return static_cast<uint16_t>(x >> 16 | 1);
}

// All heads of K or V, `pad` elements between rows that begin `offset` elements past 16 bytes; around them NaN.
struct Tensor {
  std::vector<uint16_t> storage;
  Rows rows;
  uintptr_t begin;

  Tensor(int which, int batch, int heads, int seq, int head_dim, int offset, int pad) {
    const int64_t pitch = head_dim + pad, used = (int64_t{batch} * heads * seq - 1) * pitch + head_dim;
    storage.assign(static_cast<size_t>(offset + used + 16), 0xFFFF);
    uint16_t* first = storage.data();
    while (reinterpret_cast<uintptr_t>(first) % 16 != 0) ++first;
    first += offset;
    for (int h = 0; h < batch * heads; ++h) {
      for (int r = 0; r < seq; ++r) {
        for (int c = 0; c < head_dim; ++c) first[(int64_t{h} * seq + r) * pitch + c] = element(which, h, r, c);
      }
    }
    begin = reinterpret_cast<uintptr_t>(first);
    rows = {first, heads * seq * pitch, seq * pitch, pitch, begin + static_cast<uint64_t>(used) * 2};
  }
};

template <typename C>
void check(int batch, int heads, int seq, int head_dim, int offset, int pad, int section, bool run) {
  const Tensor k(1, batch, heads, seq, head_dim, offset, pad), v(2, batch, heads, seq, head_dim, (offset + 3) % 8, pad);
  Parameters p{};
  p.k_rows = k.rows;
  p.v_rows = v.rows;
  p.seq_kv = seq;
  p.head_dim = head_dim;
  Realignment& w = p.realignment;
  w.kv_heads = batch * heads;
  w.batch_heads = heads;
  w.blocks = (seq + C::block_n - 1) / C::block_n;
  w.section = section;
  w.last_section = (w.kv_heads - 1) / section;
  w.first_tickets = 2;
  const int tile_tickets = C::block_n / 64;
  while (1 << w.tile_shift < tile_tickets) ++w.tile_shift;
  w.section_tickets = static_cast<uint32_t>(section * 2 * w.blocks * tile_tickets);
  w.tickets = static_cast<uint32_t>(w.kv_heads * 2 * w.blocks * tile_tickets);
  w.half = static_cast<uint32_t>(section * tile_tickets);
  w.last_half = static_cast<uint32_t>((w.kv_heads - w.last_section * section) * tile_tickets);
  w.by_section = Division::by(w.section_tickets);
  w.by_half = Division::by(w.half);
  w.by_last_half = Division::by(w.last_half);
  w.by_batch = Division::by(static_cast<uint32_t>(heads));
  w.counter_heads = 1;
  w.head_counters = 2 * w.blocks;
  const size_t bytes = static_cast<size_t>(w.kv_heads) * w.blocks * 2 * C::kv_bytes;
  std::vector<uint4> workspace(bytes / 16, make_uint4(~0u, ~0u, ~0u, ~0u));
  w.workspace = workspace.data();
  std::vector<int> announced(kFirstTileCounter + w.kv_heads * w.head_counters);
  for (uint32_t ticket = 0; ticket < w.tickets; ++ticket) {
    Ticket t = read_ticket<C>(p, ticket);
    announced[t.counter] += 8;
    tensor_begin = t.values ? v.begin : k.begin;
    tensor_end = t.source.end;
    const uint64_t begin = t.source.from, end = begin + static_cast<uint64_t>(64 * t.source.pitch) + 15 & ~uint64_t{15};
    // As at the start, where one copy brings all rows; else as a ticket is fetched, and as queries are.
    const bool in_run = run && t.source.pitch == head_dim * 2 && t.source.valid >= 64 && end <= t.source.end;
    for (int g = 0; g < 8; ++g) {
      std::memset(memory, 0xEE, sizeof(memory));
      const uint32_t distance = static_cast<uint32_t>(t.source.from) % 16;
      const auto of = [&](int lane) { return EightRows<C>{lane, head_dim}; };
      if (in_run) {
        reads(begin & ~uint64_t{15}, end - (begin & ~uint64_t{15}));
        std::memcpy(memory, reinterpret_cast<const void*>(begin & ~uint64_t{15}), end - (begin & ~uint64_t{15}));
      } else {
        const bool whole = (seq + head_dim) % 2 ? inside<C>(t.source, 8 - g) : inside<C>(t.source, 1);
        for (int lane = 0; lane < 32; ++lane) {
          const uint64_t place = of(lane).place_in(t.source);
          if (place % 16 != distance) fault("another distance\n");
          if (whole) {
            of(lane).fetch_whole(place & ~uint64_t{15}, base + of(lane).copied_part());
          } else {
            of(lane).fetch_checked(place, t.source.end, min(t.source.valid, 64), base + of(lane).copied_part());
          }
        }
      }
      auto* const to = static_cast<unsigned char*>(w.workspace) + t.to * uint64_t{16};
      std::array<typename EightRows<C>::Loaded, 32> z;
      together = {};
      for (const bool tells : {true, false}) {
        together.turn(tells, [&](int lane) {
          of(lane).load(z[lane],
                        base + (in_run ? of(lane).run_part(static_cast<uint32_t>(begin), g) : of(lane).raw_part()));
        });
      }
      for (int lane = 0; lane < 32; ++lane) of(lane).store(z[lane], distance, to + of(lane).part());
      // The same rows, were they queries.
      std::memset(memory, 0xEE, sizeof(memory));
      together = {};
      together.turn(true, [&](int lane) { of(lane).store_queries(z[lane], distance, base + 1024); });
      together.store();
      for (int at = -1024; at < EightRows<C>::group_bytes + 1024; at += 2) {
        const int column = at / 16, row = at / 2 % 8 * 8;  // of the rows from this group's first on
        uint16_t found, wanted = 0xEEEE;
        std::memcpy(&found, memory + 1024 + at, 2);
        if (at >= 0 && at < EightRows<C>::group_bytes) {
          const auto* const raw = reinterpret_cast<const uint16_t*>(t.source.from + row * t.source.pitch);
          wanted = row < t.source.valid && column < head_dim ? raw[column] : 0;
          if (C::overlap && column / 8 == C::chunks - 2) wanted ^= 0x8000;
        }
        if (found != wanted) fault("queries' row %d column %d: %x, not %x\n", row, column, found, wanted);
      }
      t.source.from += static_cast<uint64_t>(t.source.pitch);
      --t.source.valid;
      t.to += 8 * C::chunks;
    }
  }
  for (int kv_head = 0; kv_head < w.kv_heads; ++kv_head) {
    for (int block = 0; block < w.blocks; ++block) {
      for (int values = 0; values < 2; ++values) {
        const int count = announced[tile_counter<C>(w, kv_head, block, values)];
        if (count != static_cast<int>(complete_count<C>(w, kv_head, block, values)))
          fault("%d groups of a tile\n", count);
        const auto* const tile = reinterpret_cast<const unsigned char*>(workspace.data()) +
                                 uint64_t{16} * realigned_tile<C>(w, kv_head, block, values);
        for (int place = 0; place < C::block_n; ++place) {
          const int row = block * C::block_n + place / 64 * 64 + realigned_row(place % 64);
          for (int c = 0; c < C::chunks * 8; ++c) {
            uint16_t found;
            std::memcpy(&found, tile + place / 8 * C::chunks * 128 + c * 16 + place % 8 * 2, 2);
            const bool ones = C::ones_column && c == C::chunks * 8 - 1;
            const uint16_t wanted = row < seq && c < head_dim ? element(1 + values, kv_head, row, c)
                                    : ones                    ? C::one
                                                              : 0;
            if (found != wanted) fault("head %d row %d column %d: %x, not %x\n", kv_head, row, c, found, wanted);
          }
        }
      }
    }
  }
}

}  // namespace

// How much is wrong with rows of head_dim elements, `pad` more apart, that begin `offset` elements past 16 bytes.
extern "C" int realign(int batch, int heads, int seq, int head_dim, int offset, int pad, int section, bool run) {
  faults = 0;
  const auto with = [&](auto config) {
    check<decltype(config)>(batch, heads, seq, head_dim, offset, pad, section, run);
  };
  if (head_dim <= 64) {
    with(Config<64, 1, 128>{});
  } else if (head_dim <= 96) {
    with(Config<96, 65, 128>{});
  } else if (head_dim <= 112) {
    with(Config<112, 97, 128>{});
  } else if (head_dim <= 128) {
    with(Config<128, 113, 128>{});
  } else if (head_dim <= 135) {
    with(Config<136, 129, 128>{});
  } else if (head_dim <= 160) {
    with(Config<160, 136, 64>{});
  } else {
    with(Config<192, 161, 64>{});
  }
  return faults;
}

// The bits that a walk through tiles asks for: of `heads` heads' blocks from 0 to `last`, each V after the next K.
extern "C" int look(int count, const int* heads, const int* lasts) {
  faults = 0;
  Window window;
  const auto ask = [&](int head, int block, bool values) {
    const uint32_t bit = window.bit_of(head, block, values);
    int found = 0;
    for (int lane = 0; lane < 32; ++lane) {
      if (bit == 1u << lane && (window.head != head || window.block_of(lane) != block || (lane >= 16) != values)) {
        fault("lane %d looks at block %d, not %d\n", lane, window.block_of(lane), block);
      }
      found += bit == 1u << lane;
    }
    if (found != 1) fault("%d lanes look at block %d\n", found, block);
  };
  for (int i = 0; i < count; ++i) {
    ask(heads[i], 0, false);
    for (int j = 1; j <= lasts[i]; ++j) {
      ask(heads[i], j, false);
      ask(heads[i], j - 1, true);
    }
    ask(heads[i], lasts[i], true);
  }
  return faults;
}

extern "C" int divide(unsigned divisor) {
  faults = 0;
  const Division by = Division::by(divisor);
  for (uint64_t n = 0; n < uint64_t{1} << 31; n += n < 5000 ? 1 : 1 + n / 97) {
    for (const uint64_t near : {n, n / divisor * divisor, n / divisor * divisor + divisor - 1}) {
      if (near < uint64_t{1} << 31 && by.divide(static_cast<uint32_t>(near)) != near / divisor) fault("%u\n", divisor);
    }
  }
  return faults;
}
