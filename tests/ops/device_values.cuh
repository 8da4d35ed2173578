// What the programs beside the tests share: elements dealt out to all threads of a grid, and values that look random.
#pragma once

#include <cstddef>

__device__ inline size_t first() { return blockIdx.x * size_t{blockDim.x} + threadIdx.x; }
__device__ inline size_t step() { return gridDim.x * size_t{blockDim.x}; }

// Between -most and most, by a hash of the place.
template <typename T>
__global__ void fill(T* values, size_t count, unsigned seed, float most) {
  for (size_t i = first(); i < count; i += step()) {
    unsigned hash = static_cast<unsigned>(i) * 2654435761u + seed * 40503u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash = (hash ^ hash >> 13) * 3266489917u;
    values[i] = T((static_cast<float>((hash ^ hash >> 16) & 0xffff) / 32768.0f - 1.0f) * most);
  }
}
