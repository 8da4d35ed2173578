// The cost model: how long a plan takes, in microseconds. No CUDA, so that the program that fits the constants
// (ext/cost_models) compiles it for the host.
//
// The constants were fitted to times measured on one NVIDIA H200 (docs/ladder-gemm-hopper.md): 28,000 times of
// persistent and split-K plans (step 17), 514 of parts of k (step 18), 7,000 of ping-pong plans (step 20), 10,000 of
// multicast plans (step 21), 7,600 of all layouts (step 23, whose fit began with the constants of before and was held
// near them). `nox -s cost-models` measures and fits them again. It reads and writes the structs below:
// one `double name = value;` a line.
#pragma once

#include "plan.h"

namespace cuda_llm_ops::cuda::sm90 {

// Of persistent and split-K kernels. Times are microseconds, panels are 64 x 64 elements of a tile.
struct PlanCosts {
  double cycles_a_microsecond = 1436.1;         // of the tensor cores; the clock sinks while they work
  double barrier_cycles = 16.9;                 // of a k block
  double load_latency = 1.303;                  // of a stage
  double narrow_load_latency = 1.141;           // factor for one consumer warpgroup
  double l2_bytes_a_microsecond = 18.192e6;     // of the card
  double unaligned_l2_bytes = 1.704;            // factor where rows begin inside a line of 128 bytes
  double unaligned_l2_sectors = 1.713;          // more, where they begin inside a sector of 32 bytes
  double cut_pieces = 0.448;                    // of a k block, if pieces of MN-major rows end beyond `a`
  double crowded_lines = 0.82e-3;               // more, for each block that asks for a full line of `a`
  double memory_bytes_a_microsecond = 4.292e6;  // of the card
  double saturating_bytes = 34466.8;            // in flight on a multiprocessor, for the whole bandwidth
  double saturating_weight_bytes = 44321.6;     // the same, of weights alone
  double short_line_bandwidth = 0.9855;         // factor where a k block is no more than 128 bytes of a row
  double imbalance_exponent = 0.2091;           // bandwidth ~ balance^exponent
  double balanced = 0.9883;                     // this balance and better costs nothing
  double weights_read_again = 0.2553;           // share of the weights, for each further row of tiles
  double persistent_outside = 1.482;            // launch, first loads and drain
  double split_k_outside = 1.891;               // the same
  double fetching_ahead = 0.608;                // what fetching ahead saves of that
  double outside_a_wave = 2.126;                // for each further wave of blocks that take one tile
  double outside_a_stage_byte = 30.48e-6;       // the first stage, before the first product
  double rows_beyond = 0.386;                   // share of a tile's time, for rows beyond `a`
  double persistent_epilogue_a_panel = 0.0165;
  double epilogue_a_panel = 0.1053;
  double exchange_a_panel = 0.1398;    // of a cluster's split-K, for each block
  double exchange = 0.228;             // of a cluster's split-K, besides the panels
  double two_block_memory = 1.0245;    // factor on memory's time where two blocks share a multiprocessor
  double split_k_loop = 0.9757;        // factor on the loop's time
  double cluster = 0.0517;             // share of the time that a multicast cluster adds
  double pingpong_turn = 0.035;        // share of a loop that a turn but the first saves
  double pingpong_panel = 0.079;       // saved in a turn for each panel ...
  double pingpong_free_panels = 1.25;  // ... beyond these
  double pingpong_one_turn = 1.0091;   // factor where a block has one tile, so that one warpgroup idles
  double skinny_tiles = 1.041;         // factor for skinny tiles side by side
  double second_kernel = 1.144;        // that adds parts of k
  double parts_bytes_a_microsecond = 1.953e6;
};

// Of multicast kernels, whose clusters share operands: a block asks L2 for its part of what is shared, and receives
// all.
struct MulticastCosts {
  double outside = 3.699;
  double cycles_a_microsecond = 1443.2;
  double barrier_cycles = 0.51;
  double one_warpgroup_cycles = 10.97;  // more, with one consumer warpgroup
  double asked_bytes_a_microsecond = 125849.0;
  double unaligned_bytes = 1.562;    // factor where rows begin inside a line of 128 bytes
  double unaligned_sectors = 1.253;  // more, where they begin inside a sector of 32 bytes
  double received_bytes_a_microsecond = 199991.0;
  double latency = 0.949;          // for a ring of stages
  double cluster_latency = 0.355;  // more, in clusters
  double memory_bytes_a_microsecond = 4352920.0;
  double weights_read_again = 0.199;  // share of the weights, for each further row of tiles
  double idle_exponent = 0.0999;      // bandwidth ~ (share of busy multiprocessors)^exponent
  double epilogue_a_panel = 0.0771;
  double exchange_a_panel = 0.4533;
  double second_kernel = 0.742;
  double parts_bytes_a_microsecond = 1788814.0;
  double outside_a_wave = 5.59;
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
