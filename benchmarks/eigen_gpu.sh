#!/bin/bash
# Every case of eigen.py and eigen_precision.py that needs H200s, each under its own time limit, from the root of the repository.
#     benchmarks/eigen_gpu.sh one [22 24 25 27-16 27-32 urand precision]     one GPU; all parts, or those that are named
#     benchmarks/eigen_gpu.sh two [25 27]                                    two GPUs of one machine
# Results are written into $OUT, by default benchmarks/results/eigen.
out=${OUT:-benchmarks/results/eigen}
mkdir -p "$out"

run() {
  echo "== $*"
  timeout 230 python "$@" --output "$out"
  echo "exit status $?"
}

which=${1:?one or two}
shift
if [ "$which" = two ]; then
  for scale in ${@:-25 27}; do run benchmarks/eigen.py "h200x2-$scale" two --scales "$scale"; done
  exit
fi
for part in ${@:-22 24 25 27-16 27-32 urand precision}; do
  case $part in
    22 | 24 | 25) run benchmarks/eigen.py "h200-$part" in-core --scales "$part" ;;
    27-*) run benchmarks/eigen.py "h200-$part" streamed --scale 27 --graphs rmat --budgets "${part#27-} GiB" ;;
    urand) run benchmarks/eigen.py h200-urand streamed --scale 27 --graphs urand --budgets "16 GiB" ;;
    precision) run benchmarks/eigen_precision.py h200 --scale 20 --side 200 --devices cuda:0 --repeats 2 ;;
  esac
done
