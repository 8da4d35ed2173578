// The cost model: how long a plan takes, in microseconds. No CUDA, so that the program that fits the constants
// (ext/cost_models) compiles it for the host.
//
// The constants were fitted to times measured on one NVIDIA H200 (docs/ladder-gemm-hopper.md): 28,000 times of
// persistent and split-K plans (step 17), 514 of parts of k (step 18), 7,000 of ping-pong plans (step 20), 10,000 of
// multicast plans (step 21), 8,100 of all layouts (step 23, whose fit was held near the constants of before).
// `nox -s cost-models` measures and fits them again. It reads and writes the structs below: one `double name = value;`
// a line.
#pragma once

#include "plan.h"

namespace cuda_llm_ops::cuda::sm90 {

// Of persistent and split-K kernels. Times are microseconds, panels are 64 x 64 elements of a tile.
struct PlanCosts {
  double cycles_a_microsecond = 1442;             // of the tensor cores; the clock sinks while they work
  double barrier_cycles = 16.96;                  // of a k block
  double load_latency = 1.312;                    // of a stage
  double narrow_load_latency = 1.116;             // factor for one consumer warpgroup
  double l2_bytes_a_microsecond = 1.792e+07;      // of the card
  double unaligned_l2_bytes = 1.677;              // factor where rows begin inside a line of 128 bytes
  double unaligned_l2_sectors = 1.732;            // more, where they begin inside a sector of 32 bytes
  double cut_pieces = 0.4458;                     // of a k block, if pieces of MN-major rows end beyond `a`
  double crowded_lines = 0.0008246;               // more, for each block that asks for a full line of `a`
  double memory_bytes_a_microsecond = 4.169e+06;  // of the card
  double saturating_bytes = 3.415e+04;            // in flight on a multiprocessor, for the whole bandwidth
  double saturating_weight_bytes = 4.365e+04;     // the same, of weights alone
  double short_line_bandwidth = 0.9799;           // factor where a k block is no more than 128 bytes of a row
  double imbalance_exponent = 0.207;              // bandwidth ~ balance^exponent
  double balanced = 0.9901;                       // this balance and better costs nothing
  double weights_read_again = 0.2591;             // share of the weights, for each further row of tiles
  double persistent_outside = 1.573;              // launch, first loads and drain
  double split_k_outside = 1.835;                 // the same
  double fetching_ahead = 0.6064;                 // what fetching ahead saves of that
  double outside_a_wave = 2.114;                  // for each further wave of blocks that take one tile
  double outside_a_stage_byte = 3.072e-05;        // the first stage, before the first product
  double rows_beyond = 0.386;                     // share of a tile's time, for rows beyond `a`
  double persistent_epilogue_a_panel = 0.01651;
  double epilogue_a_panel = 0.1049;
  double exchange_a_panel = 0.1398;     // of a cluster's split-K, for each block
  double exchange = 0.2284;             // of a cluster's split-K, besides the panels
  double two_block_memory = 1.04;       // factor on memory's time where two blocks share a multiprocessor
  double split_k_loop = 0.9807;         // factor on the loop's time
  double cluster = 0.05211;             // share of the time that a multicast cluster adds
  double pingpong_turn = 0.03498;       // share of a loop that a turn but the first saves
  double pingpong_panel = 0.07879;      // saved in a turn for each panel ...
  double pingpong_free_panels = 1.251;  // ... beyond these
  double pingpong_one_turn = 1.013;     // factor where a block has one tile, so that one warpgroup idles
  double skinny_tiles = 1.046;          // factor for skinny tiles side by side
  double second_kernel = 1.141;         // that adds parts of k
  double parts_bytes_a_microsecond = 1.956e+06;
};

// Of multicast kernels, whose clusters share operands: a block asks L2 for its part of what is shared, and receives
// all.
struct MulticastCosts {
  double outside = 3.693;
  double cycles_a_microsecond = 1415;
  double barrier_cycles = 0.51;
  double one_warpgroup_cycles = 10.97;  // more, with one consumer warpgroup
  double asked_bytes_a_microsecond = 1.237e+05;
  double unaligned_bytes = 1.586;    // factor where rows begin inside a line of 128 bytes
  double unaligned_sectors = 1.273;  // more, where they begin inside a sector of 32 bytes
  double received_bytes_a_microsecond = 1.998e+05;
  double latency = 0.9505;          // for a ring of stages
  double cluster_latency = 0.3552;  // more, in clusters
  double memory_bytes_a_microsecond = 4.33e+06;
  double weights_read_again = 0.1991;  // share of the weights, for each further row of tiles
  double idle_exponent = 0.0999;       // bandwidth ~ (share of busy multiprocessors)^exponent
  double epilogue_a_panel = 0.07712;
  double exchange_a_panel = 0.4538;
  double second_kernel = 0.7419;
  double parts_bytes_a_microsecond = 1.79e+06;
  double outside_a_wave = 5.605;
};

// Factors that a plan must earn before it is chosen. They come from the cost of wrong choices, not from times, so the
// fit leaves them alone: without them the model is a time.
struct ChoiceMargins {
  double late_clusters = 1.25;       // split-K clusters of a second wave: the quickest plan of none of 1,790 products
  double large_clusters = 1.1;       // persistent clusters of four with several tiles each
  double parts = 1.05;               // parts of k
  double unused_rows = 1.02;         // tiles of which at most half the rows are used
  double multicast_few_rows = 1.05;  // multicast plans, up to 128 rows
  double multicast = 1.065;          // multicast plans, more rows
  double multicast_late_clusters = 1.067;
};

struct CostModel {
  PlanCosts plans;
  MulticastCosts multicast;
  ChoiceMargins margins;
};

// `clusters`: how many clusters of the plan a card of `sms` multiprocessors holds at once.
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms, int clusters,
                             const CostModel& costs = {});

}  // namespace cuda_llm_ops::cuda::sm90
