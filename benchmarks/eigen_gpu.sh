#!/bin/bash
# Every run of the cases eigen and eigen_precision that needs H200s, each under its own time limit, from the root of the repository.
#     benchmarks/eigen_gpu.sh one [22 24 25 27-16 27-32 urand precision]     one GPU; all parts, or those that are named
#     benchmarks/eigen_gpu.sh two [25 27]                                    two GPUs of one machine
# Results are written into $OUT, by default benchmarks/results/eigen; FORCE=1 replaces those that are there.
out=${OUT:-benchmarks/results/eigen}
mkdir -p "$out"

run() {
  echo "== $*"
  timeout 230 python -m benchmarks "$@" --output "$out" ${FORCE:+--force}
  echo "exit status $?"
}

which=${1:?one or two}
shift
if [ "$which" = two ]; then
  for scale in ${@:-25 27}; do run eigen two --name "h200x2-$scale" --scales "$scale"; done
  exit
fi
for part in ${@:-22 24 25 27-16 27-32 urand precision}; do
  case $part in
    22 | 24 | 25) run eigen in-core --name "h200-$part" --scales "$part" ;;
    27-*) run eigen streamed --name "h200-$part" --scale 27 --graphs rmat --budgets "${part#27-} GiB" ;;
    urand) run eigen streamed --name h200-urand --scale 27 --graphs urand --budgets "16 GiB" ;;
    precision) run eigen_precision --name h200 --scale 20 --side 200 --devices cuda:0 --repeats 2 ;;
  esac
done
