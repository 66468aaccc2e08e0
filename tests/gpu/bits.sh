#!/bin/sh
# Equal bits on a real GPU: nano, and a few layers of Kimi-K2.5's widths with dummy weights: a rank of TP8, and all 64 heads, in both KV caches.
# Usage: tests/gpu/bits.sh [moonlet]
set -e
moonlet=${1:-build/moonlet}
kimi="-m tests/data/kimi-k2.5 --load-format dummy"
for flag in "" --deterministic; do
    $moonlet check bits --device cuda -m models/nano $flag --requests 70 --tokens 12 --prompt 200
    for kv in bf16 fp8_e4m3; do
        $moonlet check bits --device cuda $kimi --tp-slice 8 --override num_hidden_layers=3 --kv-cache-dtype $kv $flag --requests 24 --tokens 8 --prompt 700
        $moonlet check bits --device cuda $kimi --override num_hidden_layers=2 --kv-cache-dtype $kv $flag --requests 24 --tokens 8 --prompt 700
    done
done
