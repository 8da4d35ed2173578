// Facts of the current device that the choice of a kernel needs. The driver is asked once per device.
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

// The same, or all zeros (a device without capability) if the driver does not answer.
DeviceFacts current_device_or_none();

// Allows `kernel` (a __global__ function) `bytes` of dynamic shared memory on the current device. Cheap when it was
// allowed before.
cudaError_t allow_dynamic_shared(const void* kernel, int bytes);

}  // namespace cuda_llm_ops::cuda
