// The quantisers on the host, as their dispatch launches them, in the fibers of emulated_block.h. Built and called by
// test_fp8_quantise_rows.py.
#undef __shared__
#define __shared__ static  // one thread block runs at a time
#include "cuda/fp8/quantise.cu"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;

namespace {
int last_vectors;  // of the plan that ran last; 0: rows are not in registers
int last_rows;
int multiprocessors;
}  // namespace

namespace emulated {
void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters) {
  const Fp8QuantiseArguments q = *static_cast<const Fp8QuantiseArguments*>(parameters[0]);
  const fp8::QuantisePlan plan = *static_cast<const fp8::QuantisePlan*>(parameters[1]);
  using Kernel = void (*)(const Fp8QuantiseArguments, const fp8::QuantisePlan);
  body = [=] { reinterpret_cast<Kernel>(const_cast<void*>(kernel))(q, plan); };
  last_vectors = plan.vectors, last_rows = plan.rows;
  run(grid, block, bytes, cluster);
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
DeviceFacts current_device_or_none() { return {multiprocessors, 90, 233472, 232448}; }
}  // namespace cuda_llm_ops::cuda

extern "C" {
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  memset(at, value, bytes);
  return cudaSuccess;
}

// pointers: x, other, numbers, scales. integers: batch, rows, columns, strides of batch and row of x and of other,
// ScalarType, Fp8Type, Fp8Scales, Fp8Source. card: its multiprocessors. plan: gets vectors a thread and rows a block.
const char* quantise(void** pointers, const int64_t* integers, float epsilon, int card, int* plan) {
  Fp8QuantiseArguments q;
  q.x = pointers[0], q.other = pointers[1], q.numbers = pointers[2], q.scales_out = static_cast<float*>(pointers[3]);
  for (int32_t* size : {&q.batch, &q.rows, &q.columns}) *size = static_cast<int32_t>(*integers++);
  for (int64_t* stride : {&q.x_stride_batch, &q.x_stride, &q.other_stride_batch, &q.other_stride})
    *stride = *integers++;
  q.type = static_cast<ScalarType>(*integers++);
  q.to = static_cast<Fp8Type>(*integers++);
  q.scales = static_cast<Fp8Scales>(*integers++);
  q.source = static_cast<Fp8Source>(*integers++);
  q.epsilon = epsilon;
  multiprocessors = card;
  emulated::random.seed(q.columns);
  const char* const refused = fp8_quantise(q, nullptr);
  plan[0] = last_vectors, plan[1] = last_rows;
  return refused;
}

// `count` quotients by one scale, after one step or two, as numbers.
void divided(const float* values, float scale, int count, int steps, int to, uint8_t* numbers) {
  const auto one = [&](float value, const auto& quotients) {
    float four[4] = {value};
    uint32_t word[1];
    fp8::to_numbers(word, four, quotients, static_cast<Fp8Type>(to));
    return static_cast<uint8_t>(word[0]);
  };
  for (int i = 0; i < count; ++i) {
    numbers[i] = steps == 1 ? one(values[i], fp8::Quotients<1>(scale)) : one(values[i], fp8::Quotients<2>(scale));
  }
}

// How many 16-bit values have a number that is not that of a division, by one step. For each mantissa of 11 bits, and
// each middle between two numbers, the scales are those that bring the value within three floats of the middle.
int differences(int to, const float* middles, int count, long* tried) {
  int found = 0;
  for (int mantissa = 1024; mantissa < 2048; ++mantissa) {
    const float value = static_cast<float>(mantissa);
    for (int m = 0; m < count; ++m) {
      float scale = value / middles[m];
      for (int i = 0; i < 4; ++i) scale = nextafterf(scale, 0.0f);
      for (int i = 0; i < 9; ++i, scale = nextafterf(scale, INFINITY)) {
        uint8_t ours = 0;
        divided(&value, scale, 1, 1, to, &ours);
        const float quotient = value / scale;
        const uint32_t right =
            to == 0 ? fp8::round_pair<Fp8Type::e4m3>(quotient, 0.0f) : fp8::round_pair<Fp8Type::e5m2>(quotient, 0.0f);
        found += ours != right;
        ++*tried;
      }
    }
  }
  return found;
}
}
