#!/bin/bash
# build.sh OUT: all variants as shared libraries, on a machine with nvcc 13.0 and the repository's git history.
# The commits are those of the notebook: docs/ladder-backward.md. The .so files need no extension where they run.
set -e
HERE=$(cd "$(dirname "$0")" && pwd); OUT=${1:-$HERE/so}; T=$(mktemp -d); mkdir -p $OUT
REPO=${REPO:-$(git rev-parse --show-toplevel)}
BEFORE=c5af2110 NOW=041524c6 A=6da38afa B=06a6bb0e C=a8f69f35
tree() { mkdir -p $T/$1; git -C $REPO archive $2 ext/csrc | tar x -C $T/$1; }
tree before $BEFORE; tree now $NOW; tree A $A; tree B $B; tree C $C
# B and C together
mkdir -p $T/BC; cp -r $T/B/ext $T/BC/; (cd $T/BC && git -C $REPO diff $C~1 $C -- ext/csrc | patch -p1 -s)
plan() { mkdir -p $T/$1; cp -r $T/B/ext $T/$1/; sed -i "s/Config<T, 128, 64, Is, .*>;/Config<T, 128, 64, Is, $2>;/" $T/$1/ext/csrc/cuda/backward/sm90_d128.cu; grep -q "Is, $2>" $T/$1/ext/csrc/cuda/backward/sm90_d128.cu; }
# parts of A and B by themselves (Plan in sm90_backward.cuh of B)
plan p1 1; plan p8 8; plan p9 9; plan p11 11; plan p13 13; plan p31 31; plan p32 32; plan p41 41; plan p43 43; plan p63 63
FLAGS="-O3 -std=c++17 --expt-relaxed-constexpr -DCUDA_LLM_OPS_SM90_ATTENTION -gencode=arch=compute_90a,code=sm_90a -Xcompiler -fPIC"
objects() {  # NAME FILES...: of a tree
  I=$T/$1/ext/csrc; O=$T/$1/o; mkdir -p $O; shift
  for f in $*; do nice nvcc $FLAGS -Xptxas -v -I $I -c ${f/TREE/$I/cuda} -o $O/$(basename $f .cu).o 2>> $O/log; done
}
# The host's side and the small kernels are those of `now` and of C; only C changes them.
for v in now C; do objects $v $HERE/host.cu TREE/device.cu TREE/tensor_map.cu TREE/backward/sm90_backward.cu; done
for v in ${VARIANTS:-before now A B C BC p1 p8 p9 p11 p13 p31 p32 p41 p43 p63}; do
  objects $v TREE/backward/sm90_d128.cu
  L=$T/$v/o/log
  grep -E "spill" $L | grep -v " 0 bytes spill stores, 0 bytes spill loads" && echo "SPILLS in $v" || true
  grep -E "C75[0-9][0-9]" $L || true
  case $v in C|BC) S=C;; *) S=now;; esac
  nvcc -shared -cudart static -o $OUT/$v.so $T/$v/o/sm90_d128.o $T/$S/o/{host,device,tensor_map,sm90_backward}.o
  echo "$v $(stat -c %s $OUT/$v.so)"
done
rm -rf $T
(cd $OUT/.. && tar cJf so.tar.xz $(basename $OUT)) && rm -r $OUT
