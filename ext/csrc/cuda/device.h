// What the choice of a kernel needs to know of the current device, asked of the driver once per device.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_llm_ops::cuda {

struct DeviceFacts {
  int multiprocessors;
  int capability;        // 10 * major + minor
  int shared_per_sm;     // bytes
  int shared_per_block;  // bytes, with opt-in
};

// Fills `facts` for the current device.
cudaError_t current_device_facts(DeviceFacts* facts);

// The same; all zeros, a device of no capability, where the driver does not tell them.
DeviceFacts current_device_or_none();

// Allows `kernel` (a __global__ function) `bytes` of dynamic shared memory on the current device. Cheap when it was
// allowed before.
cudaError_t allow_dynamic_shared(const void* kernel, int bytes);

}  // namespace cuda_llm_ops::cuda
