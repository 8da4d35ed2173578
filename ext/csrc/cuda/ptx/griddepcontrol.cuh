// griddepcontrol: programmatic dependent launch. PTX ISA, "Control Flow Instructions: griddepcontrol".
#pragma once

namespace cuda_llm_ops::ptx {

// Blocks until the grids before this one in the stream have finished and their writes are visible. Nothing that they
// write may be read, and nothing that they read may be written, before it. Returns at once in an ordinary launch.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next grid start its prologue once every block has said so or ended. It orders no memory.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace cuda_llm_ops::ptx
