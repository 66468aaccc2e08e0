/* Prints a checksum of the tokens and log-probabilities of N greedy requests that run together, to see whether two
 * builds compute the same bits: answer_bits N MODEL [layers] [T of --tp-slice]. A folder without weights gets dummy
 * ones. `make build/tests/gpu/answer_bits`; nothing calls it. */
#include "base/file.h"
#include "runtime/scheduler.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 40, ANSWER = 6, CONTEXT = 256 };
static u64 sum = 1469598103934665603u; /* FNV-1a, word by word */
static i64 ends, tokens;

static void on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) {
        ends += ev[i].kind == SCHED_END;
        if (ev[i].kind != SCHED_TOKEN) continue;
        u32 bits;
        memcpy(&bits, &ev[i].logprob, sizeof bits);
        const u64 words[] = {(u64)(uintptr_t)ev[i].user, (u64)ev[i].token, bits};
        for (size_t k = 0; k < COUNT_OF(words); k++) sum = (sum ^ words[k]) * 1099511628211u;
        tokens++;
    }
}

static status ask(scheduler *s, i64 number, err *e) {
    i32 prompt[PROMPT];
    for (i64 k = 0; k < PROMPT; k++) prompt[k] = (i32)((number * 7919 + k * 104729 + 13) % 1000);
    sched_request r = {.user = (void *)(uintptr_t)(number + 1),
                       .prompt = prompt,
                       .n_prompt = PROMPT,
                       .max_new = ANSWER,
                       .sampling = sampling_default(),
                       .logprobs = true};
    r.sampling.temperature = 0;
    return scheduler_submit(s, &r, 1, NULL, NULL, e) == SCHED_ACCEPTED ? ST_OK : ST_INPUT;
}

int main(int argc, char **argv) {
    char layers[64], index[4096];
    const char *override = layers;
    err e = {0};
    engine *g = NULL;
    scheduler *s = NULL;
    if (argc < 3) return fprintf(stderr, "usage: answer_bits N MODEL [layers] [T]\n"), 2;
    i64 n = atoll(argv[1]);
    snprintf(layers, sizeof layers, "num_hidden_layers=%s", argc > 3 ? argv[3] : "1");
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", argv[2]);
    const engine_options o = {.model_dir = argv[2],
                              .device = "cuda",
                              .load_format = file_exists(index) ? "auto" : "dummy",
                              .context = CONTEXT,
                              .max_running = n,
                              .kv_tokens = n * CONTEXT,
                              .tp_slice = argc > 4 ? atoll(argv[4]) : 0,
                              .overrides = &override,
                              .n_overrides = argc > 3};
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK) st = scheduler_open(&s, g, &(scheduler_options){.on_events = on_events, .manual = true}, &e);
    for (i64 i = 0; st == ST_OK && i < n; i++) st = ask(s, i, &e);
    while (st == ST_OK && ends < n) scheduler_step(s);
    if (st == ST_OK)
        printf("%lld requests, %lld tokens: %016llx\n", (long long)n, (long long)tokens, (unsigned long long)sum);
    else
        fprintf(stderr, "%s\n", e.text);
    scheduler_close(s);
    engine_close(g);
    return st != ST_OK;
}
