#!/bin/sh
# The whole recipe: tokenizer, the two models, their scores. About two hours on two CPU cores.
#   scripts/train/models/run.sh CORPUS OUT
set -eu
corpus=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
train=$(dirname "$0")/../run
# Large tensors through mmap cost half of the time in page faults; spinning threads cost more.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1000000000000 MALLOC_TOP_PAD_=500000000
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
[ -e "$out/tokenizer" ] || "$train" tokenizer "$corpus" "$out/tokenizer"
"$train" model small --corpus "$corpus" --out "$out" --minutes 62
"$train" model draft --corpus "$corpus" --out "$out" --minutes 55 --rate 0.0012 \
    --begin "$out/dragon-small" --teacher "$out/dragon-small" --teacher-share 0.8
"$train" evaluate "$corpus" "$out" | tee "$out/scores.json"
