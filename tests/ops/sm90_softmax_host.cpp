// The softmax of the Hopper attention kernel on the host: one warp of 16 query rows over blocks of 16 keys. Its 32
// lanes are fibers; a lane that comes to a warp's operation leaves its value there and lets the others run.
// test_sm90_softmax.py puts HOST_PTX in place of every header of ptx/.
#ifdef HOST_PTX
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

uint32_t of_lane_xor(uint32_t value, int mask);
bool of_all_lanes(bool value);

inline float shuffled(float value, int mask) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = of_lane_xor(bits, mask);
  std::memcpy(&value, &bits, 4);
  return value;
}
#define __shfl_xor_sync(lanes, value, mask) shuffled(value, mask)
#define __all_sync(lanes, value) of_all_lanes(value)

namespace cuda_llm_ops::ptx {
inline float flushed(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }
inline float ex2(float x) { return flushed(std::exp2f(flushed(x))); }
inline float max_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
inline uint32_t max3_s16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t both = 0;
  for (int at = 0; at < 32; at += 16) {
    const auto half = [at](uint32_t word) { return static_cast<int16_t>(word >> at); };
    both |= static_cast<uint32_t>(static_cast<uint16_t>(std::max({half(a), half(b), half(c)}))) << at;
  }
  return both;
}
}  // namespace cuda_llm_ops::ptx
#else
#include <ucontext.h>

#include <functional>
#include <vector>

#include "attention/sm90/softmax.cuh"

namespace {

namespace flash = cuda_llm_ops::cuda::sm90::flash;

ucontext_t scheduler, lanes[32];
std::vector<char> stacks[32];
std::function<void(int)> body;
int current = 0;
bool done[32], odd[32];
uint32_t posted[2][32];  // alternating, so that a lane ahead overwrites nothing that another has yet to read

void to_scheduler() { swapcontext(&lanes[current], &scheduler); }

const uint32_t* exchange(uint32_t value) {
  uint32_t* const round = posted[odd[current] = !odd[current]];
  round[current] = value;
  to_scheduler();
  return round;
}

void start() {
  body(current);
  done[current] = true;
  to_scheduler();
}

void run_warp(const std::function<void(int)>& of_lane) {
  body = of_lane;
  for (int i = 0; i < 32; ++i) {
    stacks[i].resize(1 << 17);
    done[i] = odd[i] = false;
    getcontext(&lanes[i]);
    lanes[i].uc_stack.ss_sp = stacks[i].data();
    lanes[i].uc_stack.ss_size = stacks[i].size();
    makecontext(&lanes[i], start, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (current = 0; current < 32; ++current) {
      if (done[current]) continue;
      any = true;
      swapcontext(&scheduler, &lanes[current]);
    }
  }
}

constexpr int kKeys = 16, kColumns = 8;  // of a block; of V

struct Problem {
  const float *scores, *v;  // [16][keys], [keys][8]
  const int* limits;        // keys that each row sees
  float* out;               // [16][8]
  int blocks;
  float c;
};

float weights[16][kKeys];

template <typename T>
float half_of(uint32_t pair, int which) {
  const auto bits = static_cast<uint16_t>(pair >> 16 * which);
  T value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

// How the kernel works: as its flags of these names.
enum class Way { plain, split_keys, summed };

template <typename T, bool Sum>
struct Lane {
  const Problem& p;
  const int lane;
  float o[4] = {}, ones[2] = {};  // ones: of a column of V that is 1
  flash::RowState state;

  int row(int h) const { return lane / 4 + 8 * h; }
  int column(int i) const { return 8 * (i / 4) + lane % 4 * 2 + i % 2; }

  void load(float (&s)[8], int block) const {
    for (int i = 0; i < 8; ++i) {
      s[i] = p.scores[row(i % 4 / 2) * p.blocks * kKeys + block * kKeys + column(i)];
    }
    const int first = block * kKeys + column(0);
    flash::mask_scores(s, p.limits[row(0)] - first, p.limits[row(1)] - first);
  }

  void multiply(const uint32_t (&a)[1][4], int block) {
    for (int e = 0; e < 8; ++e) weights[row(e / 2 % 2)][8 * (e / 4) + column(e % 2)] = half_of<T>(a[0][e / 2], e % 2);
    of_all_lanes(true);
    for (int i = 0; i < 4; ++i) {
      for (int key = 0; key < kKeys; ++key) {
        o[i] += weights[row(i / 2)][key] * p.v[(block * kKeys + key) * kColumns + column(i % 2)];
      }
    }
    for (int h = 0; h < 2; ++h) {
      for (int key = 0; key < kKeys; ++key) ones[h] += weights[row(h)][key];
    }
    of_all_lanes(true);
  }

  void attend(int first, int step) {
    state.reset();
    float s[8], rescale[2] = {};
    uint32_t packed[1][4];
    for (int block = first; block >= 0; block -= step) {
      load(s, block);
      if (block == first || !flash::try_block<T, Sum>(packed, s, state, p.c)) {
        flash::take_block<T, Sum>(packed, s, state, rescale, p.c);
        if (block != first) {
          flash::rescale_output(o, rescale);
          for (int h = 0; h < 2; ++h) ones[h] *= rescale[h];
        }
      }
      multiply(packed, block);
    }
  }

  void store() const {
    for (int h = 0; h < 2; ++h) {
      const float factor = Sum ? flash::finish(state, h) : flash::finish(state.maximum[h], ones[h]);
      const uint32_t pair = cuda_llm_ops::cuda::pack_pair<T>(o[2 * h] * factor, o[2 * h + 1] * factor);
      for (int e = 0; e < 2; ++e) p.out[row(h) * kColumns + column(e)] = half_of<T>(pair, e);
    }
  }
};

template <typename T>
void run(const Problem& p, Way way) {
  run_warp([&](int index) {
    if (way == Way::summed) {
      Lane<T, false> summed{p, index};
      summed.attend(p.blocks - 1, 1);
      summed.store();
      return;
    }
    Lane<T, true> lane{p, index};
    if (way == Way::split_keys) {
      Lane<T, true> other{p, index};
      lane.attend(p.blocks - 1, 2);
      if (p.blocks > 1) {
        other.attend(p.blocks - 2, 2);
      } else {
        other.state.reset();
      }
      for (int h = 0; h < 2; ++h) {
        float own, others;
        flash::join(lane.state.maximum[h], lane.state.sum[h], other.state.maximum[h], other.state.sum[h], own, others);
        for (int e = 2 * h; e < 2 * h + 2; ++e) lane.o[e] = lane.o[e] * own + other.o[e] * others;
      }
    } else {
      lane.attend(p.blocks - 1, 1);
    }
    lane.store();
  });
}

}  // namespace

uint32_t of_lane_xor(uint32_t value, int mask) {
  const int lane = current;
  return exchange(value)[lane ^ mask];
}

bool of_all_lanes(bool value) {
  const uint32_t* const all = exchange(value);
  return std::all_of(all, all + 32, [](uint32_t one) { return one != 0; });
}

extern "C" void attend(const float* scores, const float* v, const int* limits, float* out, int blocks, float c, int way,
                       bool bfloat16) {
  const Problem p{scores, v, limits, out, blocks, c};
  const Way as = static_cast<Way>(way);
  bfloat16 ? run<__nv_bfloat16>(p, as) : run<__half>(p, as);
}
#endif
