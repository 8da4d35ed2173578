// The choice among the tile configurations of one kernel: a small model of how long each would take.
#pragma once

#include "../device.h"

namespace cuda_llm_ops::cuda {

// A tile configuration as the model sees it.
struct TileCost {
  int m, n, k;             // tile
  int shared_bytes;        // a block
  int blocks_per_sm;       // that registers and threads allow
  double flops_per_clock;  // of a multiprocessor full of such blocks
  int step_latency;        // clocks a lone block takes for one tile along k, at least
  int round_latency;       // clocks from a block's start to its first product and from its last one to its end
};

// Clocks for batch x m x n x k, or infinity where the block does not fit on the device. Blocks run in rounds of as many
// as are resident; a round takes its fixed latency and for every tile along k the larger of the arithmetic of the
// blocks that share a multiprocessor and the latency of one block.
double estimated_clocks(const TileCost& cost, const DeviceFacts& device, long long batch, int m, int n, int k);

}  // namespace cuda_llm_ops::cuda
