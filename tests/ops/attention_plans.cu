// Every attention kernel on small problems that are awkward for it, without torch, so that compute-sanitizer has little
// to watch: also instances that the dispatch would not take for them, in every order of tiles, and on so few thread
// blocks that each has several tiles. Each twice in a row, against a plain kernel in float64 and bit for bit. Prints a
// line a run; exits with 1 where one is wrong.
//
//   src=ext/csrc/cuda
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DCUDA_LLM_OPS_SM90_ATTENTION -I ext/csrc -cudart static
//     tests/ops/attention_plans.cu $(find $src/attention -name "*.cu") $src/counters.cu $src/tensor_map.cu
//     $src/device.cu -o attention_plans
//   compute-sanitizer --tool racecheck --error-exitcode 9 ./attention_plans hopper 3/16   # the fourth of 16 parts
//
// KERNELS is hopper (attention/sm90 without options), options (attention/sm90/varlen.cuh), ampere (attention/mma, with
// and without options) or plain (attention/simt); PART n/of takes every of-th kernel from the n-th on; NAME takes
// kernels whose names have it in them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cuda/attention/mma/flash.h"
#include "cuda/attention/simt/simt.h"
#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/launch.h"
#include "cuda/attention/sm90/realigned.h"
#include "cuda/attention/sm90/schedule.h"
#include "cuda/attention/sm90/stream_k.h"
#include "cuda/attention/sm90/varlen.h"
#include "device_values.cuh"

using namespace cuda_llm_ops;
using cuda::sm90::flash::Instance;
using cuda::sm90::flash::Plan;
using cuda::sm90::flash::Schedule;

namespace {

enum class Mask { none, causal, bottom_right, window, varlen };
const char* const mask_names[] = {"full", "causal", "bottom right", "window", "varlen"};

struct Problem {
  int batch, heads, kv_heads, seq_q, seq_kv, head_dim;
  Mask mask;
  ScalarType type;
  int offset = 0;     // of the inputs, in elements, from a multiple of 256 bytes
  int value_dim = 0;  // 0: head_dim
};

// Variable length: sequences of 1, 130 and 70 tokens.
const std::vector<int32_t> ends = {0, 1, 131, 201};

// Row r of (batch, head, query) sees the keys seen[2 r] .. seen[2 r + 1] - 1; scores has room for all keys of every
// row.
template <typename T>
__global__ void attend(AttentionArguments a, const int32_t* seen, double* scores, double* out) {
  for (size_t r = first(); r < size_t(a.batch) * a.heads * a.seq_q; r += step()) {
    const int row = r % a.seq_q, head = r / a.seq_q % a.heads, batch = r / a.seq_q / a.heads;
    const int kv_head = head / (a.heads / a.kv_heads), begin = seen[2 * r], end = seen[2 * r + 1];
    const T* const q =
        static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head + row * a.q_stride.seq;
    const T* const k = static_cast<const T*>(a.k) + batch * a.k_stride.batch + kv_head * a.k_stride.head;
    const T* const v = static_cast<const T*>(a.v) + batch * a.v_stride.batch + kv_head * a.v_stride.head;
    double* const mine = scores + r * a.seq_kv;
    double most = -INFINITY, sum = 0;
    for (int key = begin; key < end; ++key) {
      double score = 0;
      for (int d = 0; d < a.head_dim; ++d) {
        score += double(static_cast<float>(q[d])) * double(static_cast<float>(k[key * a.k_stride.seq + d]));
      }
      mine[key] = score * a.scale;
      most = fmax(most, mine[key]);
    }
    for (int key = begin; key < end; ++key) sum += mine[key] = exp(mine[key] - most);
    for (int d = 0; d < a.value_dim; ++d) {
      double value = 0;
      for (int key = begin; key < end; ++key)
        value += mine[key] * double(static_cast<float>(v[key * a.v_stride.seq + d]));
      out[r * a.value_dim + d] = begin < end ? value / sum : 0;
    }
  }
}

// error[0] += |one - right|^2, error[1] += |right|^2, error[2] += elements where one and other differ.
template <typename T>
__global__ void compare(const T* one, const T* other, const double* right, AttentionArguments a, double* error) {
  double sums[3] = {};
  for (size_t i = first(); i < size_t(a.batch) * a.heads * a.seq_q * a.value_dim; i += step()) {
    const size_t d = i % a.value_dim, r = i / a.value_dim, row = r % a.seq_q, head = r / a.seq_q % a.heads;
    const size_t at =
        r / a.seq_q / a.heads * a.out_stride.batch + head * a.out_stride.head + row * a.out_stride.seq + d;
    const double x = static_cast<float>(one[at]), y = static_cast<float>(other[at]);
    sums[0] += (x - right[i]) * (x - right[i]);
    sums[1] += right[i] * right[i];
    sums[2] += !(x == y);
  }
  for (int i = 0; i < 3; ++i) atomicAdd(error + i, sums[i]);
}

struct Tally {
  int part = 0, parts = 1, kernels = 0, runs = 0, wrong = 0;
  const char* name = "";
  // Whether the next kernel is of this part.
  bool takes(const char* kernel) { return std::strstr(kernel, name) != nullptr && kernels++ % parts == part; }
};

using Call = std::function<const char*(AttentionArguments&, const AttentionOptions&)>;

template <typename T>
void run_typed(const Problem& p, const std::string& what, const Call& call, size_t workspace, Tally& tally) {
  AttentionArguments a;
  a.batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.seq_q = p.seq_q, a.seq_kv = p.seq_kv;
  a.head_dim = p.head_dim, a.value_dim = p.value_dim == 0 ? p.head_dim : p.value_dim;
  a.scale = 1.0f / std::sqrt(float(p.head_dim)) * 3, a.type = p.type;
  a.causal = p.mask == Mask::causal;
  const auto strides = [&](int heads, int64_t seq, int columns) {
    return HeadStrides{heads * seq * columns, seq * columns, columns};
  };
  a.q_stride = strides(p.heads, p.seq_q, a.head_dim), a.out_stride = strides(p.heads, p.seq_q, a.value_dim);
  a.k_stride = strides(p.kv_heads, p.seq_kv, a.head_dim), a.v_stride = strides(p.kv_heads, p.seq_kv, a.value_dim);
  const size_t of_q = size_t(p.batch) * a.q_stride.batch, of_kv = size_t(p.batch) * a.k_stride.batch;
  const size_t rows = size_t(p.batch) * p.heads * p.seq_q;
  T *q, *k, *v, *out[2];
  double *scores, *right, *error;
  int32_t *seen, *device_ends;
  float* lse;
  cudaMalloc(&q, (of_q + p.offset) * sizeof(T));
  for (T*& one : out) cudaMalloc(&one, of_q * sizeof(T));
  for (T** one : {&k, &v}) cudaMalloc(one, (of_kv + p.offset) * sizeof(T));
  cudaMalloc(&scores, rows * p.seq_kv * 8), cudaMalloc(&right, rows * p.head_dim * 8), cudaMalloc(&error, 24);
  cudaMalloc(&seen, rows * 8), cudaMalloc(&device_ends, ends.size() * 4), cudaMalloc(&lse, rows * 4);
  if (workspace > 0) cudaMalloc(&a.workspace, workspace);
  fill<<<64, 256>>>(q, of_q + p.offset, 1u, 1.0f), fill<<<64, 256>>>(k, of_kv + p.offset, 2u, 1.0f);
  fill<<<64, 256>>>(v, of_kv + p.offset, 3u, 1.0f);
  a.q = q + p.offset, a.k = k + p.offset, a.v = v + p.offset;

  AttentionOptions options;
  std::vector<int32_t> visible;
  for (size_t r = 0; r < rows; ++r) {
    const int i = static_cast<int>(r % p.seq_q);
    int begin = 0, end = p.seq_kv, sequence = 0;
    if (p.mask == Mask::causal) end = std::min(end, i + 1);
    if (p.mask == Mask::bottom_right) end = std::min(end, i + 1 + p.seq_kv - p.seq_q);
    if (p.mask == Mask::window) begin = std::max(0, i - 60), end = std::min(end, i + 6);
    if (p.mask == Mask::varlen) {
      while (i >= ends[sequence + 1]) ++sequence;
      begin = ends[sequence], end = i + 1;
    }
    visible.push_back(std::min(begin, std::max(end, 0))), visible.push_back(std::max(end, 0));
  }
  cudaMemcpy(seen, visible.data(), visible.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(device_ends, ends.data(), ends.size() * 4, cudaMemcpyHostToDevice);
  attend<T><<<132, 64>>>(a, seen, scores, right);

  AttentionArguments asked = a;
  if (p.mask == Mask::bottom_right) options.right = 0, options.bottom_right = true;
  if (p.mask == Mask::window) options.left = 60, options.right = 5;
  if (p.mask == Mask::varlen) {
    options.right = 0, options.cu_seqlens_q = options.cu_seqlens_kv = device_ends;
    options.total_q = options.total_kv = ends.back();
    asked.batch = static_cast<int>(ends.size()) - 1, asked.seq_q = asked.seq_kv = 130;
    for (HeadStrides* one : {&asked.q_stride, &asked.k_stride, &asked.v_stride, &asked.out_stride}) one->batch = 0;
  }
  options.lse = lse, options.lse_stride_batch = p.mask == Mask::varlen ? 0 : int64_t{p.heads} * p.seq_q;
  options.lse_stride_head = p.seq_q;
  const char* refused = nullptr;
  for (T* one : out) {
    cudaMemset(one, 0xff, of_q * sizeof(T));  // NaN
    asked.out = one;
    if (workspace > 0) cudaMemset(a.workspace, 0xff, workspace);
    if (const char* said = call(asked, options)) refused = said;
  }
  cudaMemset(error, 0, 24);
  compare<T><<<64, 256>>>(out[0], out[1], right, a, error);
  double sums[3] = {NAN, 1, 1};
  const cudaError_t failed = cudaMemcpy(sums, error, 24, cudaMemcpyDeviceToHost);
  const double relative = std::sqrt(sums[0] / sums[1]);
  const double allowed = p.type == ScalarType::float32 ? 2e-5 : p.type == ScalarType::float16 ? 2e-3 : 1.2e-2;
  const bool right_one = failed == cudaSuccess && refused == nullptr && relative <= allowed && sums[2] == 0;
  ++tally.runs;
  if (!right_one) ++tally.wrong;
  std::printf("%s %s: %d,%d/%d,%dx%d,%d+%d %s: error %.1e, %.0f other bits%s%s\n", right_one ? "ok" : "wrong",
              what.c_str(), p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_kv, p.head_dim, p.offset,
              mask_names[int(p.mask)], relative, sums[2], refused != nullptr || failed != cudaSuccess ? ": " : "",
              refused != nullptr      ? refused
              : failed != cudaSuccess ? cudaGetErrorString(failed)
                                      : "");
  std::fflush(stdout);
  if (failed != cudaSuccess) std::exit(1);
  for (T* one : {q, k, v, out[0], out[1]}) cudaFree(one);
  for (double* one : {scores, right, error}) cudaFree(one);
  cudaFree(seen), cudaFree(device_ends), cudaFree(lse), cudaFree(a.workspace);
}

void run(const Problem& p, const std::string& what, const Call& call, Tally& tally, size_t workspace = 0) {
  switch (p.type) {
    case ScalarType::float16: return run_typed<__half>(p, what, call, workspace, tally);
    case ScalarType::bfloat16: return run_typed<__nv_bfloat16>(p, what, call, workspace, tally);
    default: return run_typed<float>(p, what, call, workspace, tally);
  }
}

const char* const types[] = {"float32", "float16", "bfloat16"};
const ScalarType type_of[] = {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16};

// One instance of attention/sm90 in one order of tiles, or in that which its plan says (-1).
void run_hopper(const Instance& instance, Problem p, int multiprocessors, int schedule, Tally& tally) {
  AttentionArguments sizes;
  sizes.batch = p.batch, sizes.heads = p.heads, sizes.kv_heads = p.kv_heads, sizes.seq_q = p.seq_q,
  sizes.seq_kv = p.seq_kv;
  if (instance.value_dim < instance.head_dim) p.value_dim = instance.value_dim - (instance.head_dim - p.head_dim);
  sizes.head_dim = sizes.value_dim = p.head_dim, sizes.causal = p.mask == Mask::causal;
  const size_t workspace = instance.realigned
                               ? realignment_workspace_bytes(instance, sizes)
                               : stream_k_workspace_bytes(instance, plan(instance, sizes, multiprocessors, true));
  const std::string what = std::string(instance.kernel.name) +
                           (workspace > 0 && !instance.realigned ? ", stream-K"
                            : schedule < 0                       ? ""
                            : schedule == 2                      ? ", snake"
                                                                 : ", pairs") +
                           ", " + std::to_string(multiprocessors) + " multiprocessors";
  const Call call = [&](AttentionArguments& a, const AttentionOptions&) {
    Plan chosen = plan(instance, a, multiprocessors, true);
    if (schedule >= 0) chosen.schedule = static_cast<Schedule>(schedule);
    if (!std::isfinite(chosen.cost)) return "no plan";
    if (instance.realigned ? !realignable(instance, a) : !cuda::sm90::flash::describable(a))
      return "not for this instance";
    return launch(instance, chosen, a, nullptr);
  };
  run(p, what, call, tally, workspace);
}

// All problems and orders of one instance.
void run_hopper(const Instance& instance, Tally& tally) {
  const int d = instance.head_dim;
  const int narrower = instance.realigned ? d - 3 : d - 8, odd = instance.realigned ? 1 : 0;
  const int narrowest = instance.realigned ? std::max(instance.least_head_dim, 1) : d;
  // Two tiles of all warpgroups that three thread blocks share; four of fewer rows that five share.
  if (instance.stream_k) {
    run_hopper(instance, {1, 7, 7, 384, 170, d, Mask::none, instance.type}, 3, -1, tally);
    run_hopper(instance, {1, 4, 4, 1100, 330, d, Mask::none, instance.type}, 5, -1, tally);
    return;
  }
  for (const Mask mask : {Mask::none, Mask::causal}) {
    run_hopper(instance, {1, 2, 1, 130, 200, narrower, mask, instance.type}, 132, -1, tally);
    for (const int schedule : {2, 3}) {
      if (mask == Mask::causal) {
        run_hopper(instance, {1, 3, 3, 260, 170, d, mask, instance.type, odd}, 2, schedule, tally);
      } else if (schedule == 2) {
        run_hopper(instance, {1, 3, 3, 260, 170, d, mask, instance.type, odd}, 2, -1, tally);
      }
    }
    run_hopper(instance, {2, 4, 2, 450, 530, narrowest, mask, instance.type, odd * 3}, 6, -1, tally);
  }
}

void hopper(Tally& tally) {
  using namespace cuda::sm90::flash;
  for (const Instances instances : kInstances) {
    for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
      for (const Instance& instance : instances(type)) {
        if (tally.takes(instance.kernel.name)) run_hopper(instance, tally);
      }
    }
  }
}

// 35 heads make more tiles than there are multiprocessors.
std::vector<Problem> with_options(int head_dim, ScalarType type, int offset) {
  return {{1, 2, 1, 150, 220, head_dim, Mask::bottom_right, type, offset},
          {1, 35, 35, 140, 90, head_dim, Mask::window, type, offset},
          {1, 2, 2, 201, 201, head_dim, Mask::varlen, type, offset}};
}

void options(Tally& tally) {
  for (const int head_dim : {64, 96, 128, 192, 256, 40, 136, -192}) {  // -192: with a V of 128 columns
    for (const int type : {1, 2}) {
      const std::string what = std::string(types[type]) + " with options, head_dim " +
                               std::to_string(std::abs(head_dim)) + (head_dim < 0 ? ", V of 128" : "");
      if (!tally.takes(what.c_str())) continue;
      for (Problem p : with_options(std::abs(head_dim), type_of[type], 0)) {
        if (head_dim < 0) p.value_dim = 128;
        run(
            p, what,
            [](AttentionArguments& a, const AttentionOptions& o) {
              return cuda::sm90::varlen_supported(a, o) ? cuda::sm90::flash_attention_varlen(a, o, nullptr)
                                                        : "not supported";
            },
            tally);
      }
    }
  }
}

void ampere(Tally& tally) {
  using namespace cuda::flash_mma;
  const auto all = [&](cuda::ArrayView<cuda::flash_mma::Instance> instances, ScalarType type, bool takes_options) {
    for (const cuda::flash_mma::Instance& instance : instances) {
      if (!tally.takes(instance.kernel.name)) continue;
      const bool realign = instance.realigned;
      const int d = realign ? instance.head_dim - 1 : instance.head_dim, offset = realign ? 1 : 0;
      if (takes_options) {
        for (const Problem& p : with_options(d, type, offset)) {
          run(
              p, instance.kernel.name,
              [&](AttentionArguments& a, const AttentionOptions& o) { return run_varlen(instance, a, o, nullptr); },
              tally);
        }
        continue;
      }
      for (const Mask mask : {Mask::none, Mask::causal}) {
        for (const Problem& p : {Problem{1, 2, 1, 130, 200, d, mask, type, offset},
                                 Problem{2, 2, 2, 300, 190, realign ? d : d - 8, mask, type, offset}}) {
          run(
              p, instance.kernel.name,
              [&](AttentionArguments& a, const AttentionOptions&) {
                return cuda::flash_mma::run(instance, a, nullptr);
              },
              tally);
        }
      }
    }
  };
  all(aligned<__half>(), ScalarType::float16, false), all(aligned<__nv_bfloat16>(), ScalarType::bfloat16, false);
  all(wide<__half>(), ScalarType::float16, false), all(wide<__nv_bfloat16>(), ScalarType::bfloat16, false);
  all(realigned<__half>(), ScalarType::float16, false), all(realigned<__nv_bfloat16>(), ScalarType::bfloat16, false);
  all(varlen<__half>(), ScalarType::float16, true), all(varlen<__nv_bfloat16>(), ScalarType::bfloat16, true);
}

void plain(Tally& tally) {
  for (const int type : {0, 1, 2}) {
    for (const int head_dim : {1, 40, 65, 128, 256}) {
      const std::string what = std::string(types[type]) + ", head_dim " + std::to_string(head_dim);
      if (!tally.takes(what.c_str())) continue;
      for (const Mask mask : {Mask::none, Mask::causal}) {
        const Problem p{1, 2, 1, 130, 200, head_dim, mask, type_of[type], head_dim % 2};
        AttentionArguments sizes;
        sizes.batch = p.batch, sizes.heads = p.heads, sizes.seq_q = p.seq_q, sizes.seq_kv = p.seq_kv;
        run(
            p, "naive, " + what,
            [](AttentionArguments& a, const AttentionOptions&) { return cuda::attention::naive(a, nullptr); }, tally,
            cuda::naive_attention_workspace_bytes(sizes));
        run(
            p, "tiled, " + what,
            [](AttentionArguments& a, const AttentionOptions&) { return cuda::attention::tiled(a, nullptr); }, tally);
        if (type == 0) {
          run(
              p, "simt, " + what,
              [](AttentionArguments& a, const AttentionOptions&) { return cuda::attention::flash_simt(a, nullptr); },
              tally);
        }
      }
      if (type == 0) {
        for (const Problem& p : with_options(head_dim, ScalarType::float32, 0)) {
          run(
              p, "simt, " + what,
              [](AttentionArguments& a, const AttentionOptions& o) {
                return cuda::attention::flash_simt_varlen(a, o, nullptr);
              },
              tally);
        }
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string kernels = count > 1 ? words[1] : "";
  Tally tally;
  const bool known = kernels == "hopper" || kernels == "options" || kernels == "ampere" || kernels == "plain";
  if (!known || (count > 2 && std::sscanf(words[2], "%d/%d", &tally.part, &tally.parts) != 2) || tally.parts < 1) {
    std::fprintf(stderr, "usage: %s hopper|options|ampere|plain [PART/PARTS] [NAME]\n", words[0]);
    return 2;
  }
  if (count > 3) tally.name = words[3];
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::fprintf(stderr, "needs a GPU of compute capability 9.0\n");
    return 2;
  }
  if (kernels == "hopper") hopper(tally);
  if (kernels == "options") options(tally);
  if (kernels == "ampere") ampere(tally);
  if (kernels == "plain") plain(tally);
  std::printf("ran %d times, %d wrong\n", tally.runs, tally.wrong);
  return tally.wrong != 0;
}
