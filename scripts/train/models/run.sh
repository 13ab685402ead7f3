#!/bin/sh
# The whole recipe: tokenizer, the three models, their scores. About 140 minutes on two CPU cores.
#   scripts/train/models/run.sh CORPUS OUT
set -eu
corpus=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
# Large tensors through mmap cost half of the time in page faults; spinning threads cost more.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1000000000000 MALLOC_TOP_PAD_=500000000
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
[ -e "$out/tokenizer" ] || python -m scripts.train.models.tokenizer "$corpus" "$out/tokenizer"
python -m scripts.train.models.train small "$corpus" "$out" --minutes 62
python -m scripts.train.models.train draft "$corpus" "$out" --minutes 55 --rate 1.2e-3 \
    --begin "$out/dragon-small" --teacher "$out/dragon-small" --teacher-share 0.8
python -m scripts.train.models.train opt "$corpus" "$out" --minutes 17 --rate 2.5e-3 --warmup 200
python -m scripts.train.models.evaluate "$corpus" "$out" | tee "$out/scores.json"
