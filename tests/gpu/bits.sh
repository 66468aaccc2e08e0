#!/bin/sh
# Equal bits on a real GPU: nano, and three layers of Kimi-K2.5's widths with dummy weights. Usage: tests/gpu/bits.sh [moonlet]
set -e
moonlet=${1:-build/moonlet}
kimi="-m tests/data/kimi-k2.5 --load-format dummy --tp-slice 8 --override num_hidden_layers=3"
for flag in "" --deterministic; do
    $moonlet check bits --device cuda -m models/nano $flag --requests 70 --tokens 12 --prompt 200
    $moonlet check bits --device cuda $kimi $flag --requests 24 --tokens 8 --prompt 700
done
