/* cmd/serve/elsewhere.c: SGLang's and vLLM's options of a server. docs/guide/flags.md has every row. */
#include "cmd/serve/elsewhere.h"

#define NO_LEVELS     "there are no levels: notices and warnings go to stderr, a line a request with --log-requests"
#define PLAIN_HTTP    "the server speaks plain HTTP: put a reverse proxy in front of it, and leave this out"
#define OWN_TOKENIZER "the tokenizer is that of the model's folder: leave it out"
#define PICTURES      "pictures are read where the model has a vision tower"
#define NO_ADAPTERS   "adapters are not supported: leave it out"
#define ONE_POOL      "there is one KV pool, on the device: leave it out"

const opt_elsewhere serve_elsewhere[] = {
    OPT_SAME("gpu-memory-utilization", "mem-fraction-static"),
    OPT_SAME("max-num-seqs", "max-running-requests"),
    OPT_SAME("no-enable-prefix-caching", "disable-radix-cache"),
    OPT_SAME("enable-log-requests", "log-requests"),
    OPT_SAME("language-only", "language-model-only"),
    OPT_SAME("stream-output", "incremental-streaming-output"),
    {"scheduling-policy", ELSEWHERE_NOTHING, true, "priority", "a request's priority always counts"},
    OPT_SAME("scheduling-policy", "schedule-policy"),
    {"enable-prefix-caching", ELSEWHERE_NOTHING, false, NULL, "it is on unless --disable-radix-cache is given"},
    {"enable-auto-tool-choice", ELSEWHERE_NOTHING, false, NULL, "calls are looked for wherever a request has tools"},
    {"enable-chunked-prefill", ELSEWHERE_NOTHING, false, NULL,
     "prompts always come in chunks (--chunked-prefill-size)"},
    {"enable-mixed-chunk", ELSEWHERE_NOTHING, false, NULL, "prompts always share steps with answers (--decode-stall)"},
    {"enable-metrics", ELSEWHERE_NOTHING, false, NULL, "/metrics is always there"},
    {"enable-cache-report", ELSEWHERE_NOTHING, false, NULL, "usage always has cached_tokens"},
    {"disable-log-requests", ELSEWHERE_NOTHING, false, NULL, "requests are logged with --log-requests alone"},
    {"no-enable-log-requests", ELSEWHERE_NOTHING, false, NULL, "requests are logged with --log-requests alone"},
    {"disable-log-stats", ELSEWHERE_NOTHING, false, NULL, "nothing is logged by the clock; /live and /metrics have it"},
    {"decode-log-interval", ELSEWHERE_NOTHING, true, NULL,
     "nothing is logged by the clock; /live and /metrics have it"},
    {"skip-server-warmup", ELSEWHERE_NOTHING, false, NULL, "there is no warm-up"},
    {"log-level", ELSEWHERE_NOTHING, true, NULL, NO_LEVELS},
    {"log-level-http", ELSEWHERE_NOTHING, true, NULL, NO_LEVELS},
    {"uvicorn-log-level", ELSEWHERE_NOTHING, true, NULL, NO_LEVELS},
    {"grammar-backend", ELSEWHERE_NOTHING, true, NULL, "there is one, built in, and it is always there"},
    {"constrained-json-whitespace-pattern", ELSEWHERE_REFUSED, true, NULL,
     "write --constrained-json-whitespace any, line (the default) or none"},
    {"tokenizer-mode", ELSEWHERE_NOTHING, true, "auto", "there is one tokenizer, Kimi's"},
    {"tokenizer-mode", ELSEWHERE_REFUSED, true, NULL, OWN_TOKENIZER},
    {"tokenizer", ELSEWHERE_REFUSED, true, NULL, OWN_TOKENIZER},
    {"tokenizer-path", ELSEWHERE_REFUSED, true, NULL, OWN_TOKENIZER},
    {"skip-tokenizer-init", ELSEWHERE_REFUSED, false, NULL, "requests may hold token ids as they are: leave it out"},
    {"chat-template", ELSEWHERE_REFUSED, true, NULL,
     "templates are built in, and the model's folder says which: leave it out, or write --template NAME (--help lists "
     "them)"},
    {"generation-config", ELSEWHERE_NOTHING, true, "auto", "the model's generation_config.json always counts"},
    {"generation-config", ELSEWHERE_REFUSED, true, NULL,
     "the model's own counts: leave it out, and send sampling fields with requests"},
    {"seed", ELSEWHERE_REFUSED, true, NULL, "seeds are the requests' own: leave it out, and send \"seed\""},
    {"random-seed", ELSEWHERE_REFUSED, true, NULL, "seeds are the requests' own: leave it out, and send \"seed\""},
    {"page-size", ELSEWHERE_NOTHING, true, "64", "pages always have 64 tokens"},
    {"page-size", ELSEWHERE_REFUSED, true, NULL, "pages always have 64 tokens: leave it out"},
    {"block-size", ELSEWHERE_NOTHING, true, "64", "pages always have 64 tokens"},
    {"block-size", ELSEWHERE_REFUSED, true, NULL, "pages always have 64 tokens: leave it out"},
    {"stream-interval", ELSEWHERE_NOTHING, true, "1", "tokens are sent as they come"},
    {"stream-interval", ELSEWHERE_REFUSED, true, NULL, "tokens are sent as they come: leave it out"},
    {"max-prefill-tokens", ELSEWHERE_REFUSED, true, NULL,
     "write --chunked-prefill-size N: all prompts of a step share it"},
    {"allowed-origins", ELSEWHERE_REFUSED, true, NULL, "write --allow-origin ORIGIN, once for each, or '*'"},
    {"ssl-*", ELSEWHERE_REFUSED, true, NULL, PLAIN_HTTP},
    {"root-path", ELSEWHERE_REFUSED, true, NULL, PLAIN_HTTP},
    {"enable-lora", ELSEWHERE_REFUSED, false, NULL, NO_ADAPTERS},
    {"lora-*", ELSEWHERE_REFUSED, true, NULL, NO_ADAPTERS},
    {"enable-multimodal", ELSEWHERE_NOTHING, false, NULL, PICTURES},
    {"limit-mm-per-prompt", ELSEWHERE_REFUSED, true, NULL, "write --max-pictures N"},
    {"limit-mm-data-per-request", ELSEWHERE_REFUSED, true, NULL, "write --max-pictures N"},
    {"mm-*", ELSEWHERE_REFUSED, true, NULL, PICTURES ", on the model's own ranks: leave it out"},
    {"enable-hierarchical-cache", ELSEWHERE_REFUSED, false, NULL, ONE_POOL},
    {"swap-space", ELSEWHERE_NOTHING, true, "0", "nothing is swapped"},
    {"swap-space", ELSEWHERE_REFUSED, true, NULL, ONE_POOL},
    {"disaggregation-*", ELSEWHERE_REFUSED, true, NULL, "prompts and answers share an engine: leave it out"},
};
const size_t n_serve_elsewhere = COUNT_OF(serve_elsewhere);
