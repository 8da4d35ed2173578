// The order in which a Hopper flash kernel takes its tiles, and what that costs. schedule.cuh is the device side.
#pragma once

#include "instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

struct Plan {
  Schedule schedule;
  int blocks;                  // of the grid
  int section;                 // heads
  int pair_rounds, tail_head;  // Schedule::pairs; tail_head is the number of heads if there is no tail
  int slices, slice_units, slice_tall, slice_tiles;  // Schedule::slices
  int rounds, tall, left_tall, left_small;           // Schedule::stream_k, as in StreamK
  int tall_ranges, share_of_tall, share_of_small;
  double cost;  // of the busiest thread block, in the unit of Cost
};

// The cheapest plan of an instance. may_stream_k: there is, or would be, a workspace for Schedule::stream_k. The cost
// is infinite if the instance cannot compute the problem.
Plan plan(const Instance& instance, const AttentionArguments& arguments, int multiprocessors,
          bool may_stream_k = false);

// The bytes that all rows of the inputs are aligned to: a power of two, at most 128.
int alignment(const AttentionArguments& arguments);

}  // namespace cuda_llm_ops::cuda::sm90::flash
