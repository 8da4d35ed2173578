// Host side of a Hopper flash kernel: the order of its tiles, what that costs, tensor maps, the launch.
#pragma once

#include <cuda_runtime.h>

#include "sm90_instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

struct Plan {
  Schedule schedule;
  int blocks;   // of the grid
  int section;  // heads
  int pair_rounds, tail_head;  // of Schedule::pairs: tail_head is the number of heads where there is no tail
  int chunks, chunk_units, chunk_tall, chunk_tiles;  // of Schedule::chunks
  int rounds, tall, left_tall, left_small;           // of Schedule::even, as in Even
  int tall_ranges, share_of_tall, share_of_small;
  double cost;  // of the busiest block, in products of 64 queries with one key, weighed by Cost
};

// may_share: there is, or would be, a workspace for Schedule::even. The cost is infinite where the instance cannot do it.
Plan plan(const Instance& instance, const AttentionArguments& arguments, int multiprocessors, bool may_share = false);

// The bytes that all rows of the inputs are aligned to: a power of two, at most 128.
int alignment(const AttentionArguments& arguments);

// Whether TMA can describe the inputs, and 16-byte stores the output.
bool describable(const AttentionArguments& arguments);

// Whether a packing instance can compute these arguments, given counters; and what it works in.
bool packable(const Instance& instance, const AttentionArguments& arguments);
size_t workspace_bytes(const Instance& instance, const AttentionArguments& arguments);

// What Schedule::even works in; 0 for other plans.
size_t shared_tiles_bytes(const Instance& instance, const Plan& plan);

const char* launch(const Instance& instance, const Plan& plan, const AttentionArguments& arguments,
                   cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90::flash
