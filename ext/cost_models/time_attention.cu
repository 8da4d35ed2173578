// Times every instance of the Hopper attention kernels on random problems, for attention.py. Prints one line of JSON
// for each: see times.py. measure_attention.py compiles and runs it.
//
//   time_attention SECONDS SEED
//
// A problem's tensors are fresh in each of several copies, more than three times the L2 cache together, so that every
// call reads from memory. A CUDA graph holds one call for each copy. The graphs of all instances of a problem are
// replayed in turn, so that all meet the same clock and temperature. The median of seven replays counts.
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/launch.h"
#include "cuda/attention/sm90/schedule.h"
#include "cuda/attention/sm90/stream_k.h"

using namespace cuda_llm_ops;
namespace flash = cuda::sm90::flash;

namespace {

constexpr int kRounds = 7;
constexpr int64_t kCacheBytes = int64_t{60} << 20;
constexpr double kMostOperations = 2e12;  // of a call: about 4 ms

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "time_attention: %s\n", cudaGetErrorString(error));
  std::exit(2);
}

__global__ void fill(__half* out, size_t count, unsigned seed) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    unsigned x = (static_cast<unsigned>(i) + seed) * 2654435761u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    out[i] = __float2half_rn(static_cast<float>(x & 0xffff) / 32768.0f - 1.0f);
  }
}

struct Problem {
  int batch, heads, kv_heads, seq_q, seq_kv, head_dim;
  bool causal, misaligned;

  int64_t q_elements() const { return int64_t{batch} * heads * seq_q * head_dim; }
  int64_t kv_elements() const { return int64_t{batch} * kv_heads * seq_kv * head_dim; }
  double operations() const { return 4.0 * q_elements() * seq_kv * (causal ? 0.5 : 1.0); }
};

Problem draw(std::mt19937& random, int head_dim) {
  const auto log_uniform = [&](double low, double high) {
    return static_cast<int>(
        std::lround(std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(random))));
  };
  while (true) {
    Problem p{};
    p.head_dim = head_dim;
    p.batch = log_uniform(1, 16);
    p.kv_heads = log_uniform(1, 16);
    p.heads = p.kv_heads * (1 << random() % 4);
    p.seq_q = log_uniform(64, 16384);
    p.causal = random() % 2 != 0;
    p.seq_kv = p.causal || random() % 4 != 0 ? p.seq_q : log_uniform(64, 16384);
    p.misaligned = random() % 3 == 0;
    if (p.operations() <= kMostOperations && p.operations() >= 1e8 && p.q_elements() < int64_t{1} << 30) return p;
  }
}

// One copy of the tensors.
struct Tensors {
  __half* memory = nullptr;
  AttentionArguments arguments;

  Tensors(const Problem& p, unsigned seed) {
    const int64_t q = p.q_elements(), kv = p.kv_elements();
    const auto room = [](int64_t elements) { return (elements + 8 + 127) / 128 * 128; };
    const int64_t count = 2 * room(q) + 2 * room(kv);
    check(cudaMalloc(&memory, count * sizeof(__half)));
    fill<<<264, 256>>>(memory, count, seed);
    AttentionArguments& a = arguments;
    const int offset = p.misaligned ? 8 : 0;  // 16 bytes
    a.q = memory + offset, a.k = memory + room(q) + offset, a.v = memory + room(q) + room(kv) + offset;
    a.out = memory + room(q) + 2 * room(kv);
    a.batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads;
    a.seq_q = p.seq_q, a.seq_kv = p.seq_kv, a.head_dim = a.value_dim = p.head_dim;
    const auto dense = [&](int heads, int64_t seq) {
      return HeadStrides{heads * seq * p.head_dim, seq * p.head_dim, p.head_dim};
    };
    a.q_stride = a.out_stride = dense(p.heads, p.seq_q);
    a.k_stride = a.v_stride = dense(p.kv_heads, p.seq_kv);
    a.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
    a.causal = p.causal;
    a.type = ScalarType::float16;
  }
  ~Tensors() { cudaFree(memory); }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
};

struct Timed {
  const flash::Instance* instance;
  cudaGraphExec_t graph;
  std::vector<float> milliseconds;
};

void time_problem(const Problem& p, int multiprocessors, cudaStream_t stream) {
  const int64_t bytes = 4 * (p.q_elements() + p.kv_elements());
  const int copies = static_cast<int>(std::max<int64_t>(2, 3 * kCacheBytes / bytes + 1));
  std::vector<Tensors*> tensors;
  for (int i = 0; i < std::min(copies, 64); ++i) tensors.push_back(new Tensors(p, static_cast<unsigned>(i)));
  std::vector<Timed> all;
  std::vector<void*> workspaces;
  for (const flash::Instances list : flash::kInstances) {
    for (const flash::Instance& instance : list(ScalarType::float16)) {
      // The one instance with a narrower V has nothing to be compared with.
      if (instance.realigned || instance.head_dim != p.head_dim || instance.value_dim < instance.head_dim) continue;
      const flash::Plan plan = flash::plan(instance, tensors[0]->arguments, multiprocessors, true);
      if (!std::isfinite(plan.cost)) continue;
      void* workspace = nullptr;
      if (const size_t needed = flash::stream_k_workspace_bytes(instance, plan); needed > 0) {
        check(cudaMalloc(&workspace, needed));
        workspaces.push_back(workspace);
      }
      cudaGraph_t graph;
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (Tensors* one : tensors) {
        one->arguments.workspace = workspace;
        if (const char* refused = flash::launch(instance, plan, one->arguments, stream)) {
          std::fprintf(stderr, "time_attention: %s: %s\n", instance.kernel.name, refused);
          std::exit(2);
        }
      }
      check(cudaStreamEndCapture(stream, &graph));
      all.push_back({&instance, nullptr, {}});
      check(cudaGraphInstantiate(&all.back().graph, graph, 0));
      check(cudaGraphDestroy(graph));
    }
  }
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  for (int round = 0; round <= kRounds; ++round) {
    for (Timed& one : all) {
      float milliseconds = 0.0f;
      check(cudaEventRecord(begin, stream));
      check(cudaGraphLaunch(one.graph, stream));
      check(cudaEventRecord(end, stream));
      check(cudaEventSynchronize(end));
      check(cudaEventElapsedTime(&milliseconds, begin, end));
      if (round > 0) one.milliseconds.push_back(milliseconds);  // the first round warms up
    }
  }
  for (Timed& one : all) {
    std::sort(one.milliseconds.begin(), one.milliseconds.end());
    const flash::Instance& i = *one.instance;
    // A name begins with the element type, which the model does not know.
    const char* const name = std::strchr(i.kernel.name, ' ');
    std::printf(
        "{\"plan\": \"%s\", \"batch\": %d, \"heads\": %d, \"kv_heads\": %d, \"seq_q\": %d, \"seq_kv\": %d, "
        "\"head_dim\": %d, "
        "\"causal\": %d, \"misaligned\": %d, \"instance_head_dim\": %d, \"block_m\": %d, \"block_n\": %d, \"cluster\": "
        "%d, "
        "\"split_keys\": %d, \"cross_tile\": %d, \"stream_k\": %d, \"part_bytes\": %d, \"multiprocessors\": %d, "
        "\"microseconds\": %.4f}\n",
        name == nullptr ? i.kernel.name : name + 1, p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_kv, p.head_dim,
        p.causal, p.misaligned, i.head_dim, i.block_m, i.block_n, i.cluster, i.split_keys, i.cross_tile, i.stream_k,
        i.part_bytes, multiprocessors, 1e3 * one.milliseconds[kRounds / 2] / static_cast<double>(tensors.size()));
    check(cudaGraphExecDestroy(one.graph));
  }
  std::fflush(stdout);
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  for (void* workspace : workspaces) check(cudaFree(workspace));
  for (Tensors* one : tensors) delete one;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 || std::atof(words[1]) <= 0.0) {
    std::fprintf(stderr, "usage: %s SECONDS SEED\n", words[0]);
    return 2;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::fprintf(stderr, "time_attention: there is no GPU of compute capability 9.0\n");
    return 2;
  }
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  std::vector<int> head_dims;
  for (const flash::Instances list : flash::kInstances) {
    for (const flash::Instance& instance : list(ScalarType::float16)) {
      if (!instance.realigned) head_dims.push_back(instance.head_dim);
    }
  }
  std::sort(head_dims.begin(), head_dims.end());
  head_dims.erase(std::unique(head_dims.begin(), head_dims.end()), head_dims.end());
  std::mt19937 random(static_cast<unsigned>(std::atoi(words[2])));
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0;
       std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < std::atof(words[1]); ++i) {
    time_problem(draw(random, head_dims[i % head_dims.size()]), properties.multiProcessorCount, stream);
  }
  return 0;
}
