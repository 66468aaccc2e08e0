/* Tokens a second of the scheduler at several concurrencies, and its own share of the time:
 * `make build/tests/unit/runtime/bench_scheduler` and `build/tests/unit/runtime/bench_scheduler [MODEL [TOKENS
 * [THREADS]]]`; `bench_scheduler queue`: what a step costs beside the model while 64 prompts of 250,000 tokens wait. */
#include "base/log.h"
#include "runtime/scheduler.h"
#include "runtime/simulate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static i64 left;

static void on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) left -= ev[i].kind == SCHED_END;
}

static int fail(const err *e) {
    fprintf(stderr, "bench_scheduler: %s\n", e->text);
    return 1;
}

static f64 cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (f64)t.tv_sec + (f64)t.tv_nsec * 1e-9;
}

static bool submit(scheduler *s, i32 *prompt, i64 n, i64 max_new, err *e) {
    sched_request r = {.prompt = prompt, .n_prompt = n, .max_new = max_new, .sampling = sampling_default()};
    left++;
    return scheduler_submit(s, &r, 1, NULL, NULL, e) == SCHED_ACCEPTED;
}

/* Two prompts are being computed, 64 others that share 200,000 tokens with what the cache has wait for their turn. */
static int queue_cost(void) {
    enum { WAIT = 64, LENGTH = 250000, SHARED = 200000, STEPS = 40 };
    static const char *const overrides[] = {"max_position_embeddings=262144"};
    static const i64 no_time = 0;
    static i32 prompt[LENGTH];
    err e = {0};
    engine *g;
    scheduler *s;
    engine_options eo = {.model_dir = "models/nano",
                         .threads = 1,
                         .context = 262144,
                         .kv_tokens = 4 * 262144,
                         .max_running = 4,
                         .overrides = overrides,
                         .n_overrides = 1,
                         .step = simulated_step,
                         .step_ud = (void *)&no_time};
    scheduler_options so = {.on_events = on_events, .manual = true, .policy = SCHED_LPM};
    if (engine_open(&g, &eo, &e) != ST_OK || scheduler_open(&s, g, &so, &e) != ST_OK) return fail(&e);
    for (i64 k = 0; k < LENGTH; k++) prompt[k] = (i32)(k * k * 131 % 1021);
    if (!submit(s, prompt, SHARED, 1, &e)) return fail(&e);
    while (left) scheduler_step(s);
    for (i64 i = 0; i < 2 + WAIT; i++) {
        for (i64 k = i < 2 ? 0 : SHARED; k < LENGTH; k++) prompt[k] = (i32)((k * k * 131 + i + 1) % 1021);
        for (i64 k = 0; i == 1 && k < SHARED; k++) prompt[k] = (i32)(k * k * 131 % 1021);
        if (i == 1) prompt[0] = 3; /* of its own from the beginning */
        if (!submit(s, prompt, LENGTH, 1, &e)) return fail(&e);
        prompt[0] = 0;
    }
    f64 sum = 0, longest = 0;
    for (int i = 0; i < STEPS; i++) {
        f64 cpu = cpu_s();
        scheduler_step(s);
        cpu = cpu_s() - cpu;
        sum += cpu;
        if (cpu > longest) longest = cpu;
    }
    printf("%d prompts of %d tokens wait: %.2f ms of CPU a step, the longest %.2f\n", WAIT, LENGTH, 1e3 * sum / STEPS,
           1e3 * longest);
    scheduler_close(s);
    engine_close(g);
    return 0;
}

int main(int argc, char **argv) {
    err e = {0};
    if (argc > 1 && !strcmp(argv[1], "queue")) return queue_cost();
    const i64 tokens = argc > 2 ? atoll(argv[2]) : 200, prompt_tokens = 60;
    engine *g;
    scheduler *s;
    engine_options eo = {.model_dir = argc > 1 ? argv[1] : "models/nano",
                         .threads = argc > 3 ? atoi(argv[3]) : 0,
                         .context = 2048,
                         .max_running = 256};
    scheduler_options so = {.on_events = on_events, .manual = true};
    if (engine_open(&g, &eo, &e) != ST_OK || scheduler_open(&s, g, &so, &e) != ST_OK) return fail(&e);
    const i64 ids = min_i64(engine_config(g)->vocab, 700);
    printf("%s\n%8s %8s %12s %12s %12s %12s\n", engine_plan(g), "requests", "sampling", "output tok/s", "step ms",
           "TTFT ms", "prefill t/s");
    for (int hot = -1; hot < 2; hot++) /* -1: for warmth alone */
        for (i64 n = 1; n <= 256; n *= 4) {
            sched_stats a, b;
            scheduler_flush(s, NULL);
            left = n;
            scheduler_stats(s, &a);
            for (i64 i = 0; i < n; i++) {
                i32 prompt[60];
                for (i64 k = 0; k < prompt_tokens; k++) prompt[k] = (i32)((k * 131 + i * 977 + 7) % ids);
                sched_request r = {
                    .prompt = prompt, .n_prompt = prompt_tokens, .max_new = tokens, .sampling = sampling_default()};
                if (hot > 0) r.sampling.temperature = 1, r.sampling.top_p = 0.95, r.sampling.seed = (u64)i;
                if (scheduler_submit(s, &r, 1, NULL, NULL, &e) != SCHED_ACCEPTED) return fail(&e);
            }
            f64 start = now_s(), first = 0;
            while (left) {
                scheduler_step(s);
                scheduler_stats(s, &b);
                if (!first && b.prefilling == 0 && b.queued == 0) first = now_s();
            }
            f64 end = now_s();
            i64 steps = b.steps - a.steps;
            if (hot >= 0)
                printf("%8lld %8s %12.0f %12.3f %12.1f %12.0f\n", (long long)n, hot > 0 ? "T=1 p=.95" : "greedy",
                       (f64)(n * tokens) / (end - start), 1e3 * (end - start) / (f64)steps, 1e3 * (first - start),
                       (f64)(n * prompt_tokens) / (first - start));
        }
    scheduler_close(s);
    engine_close(g);
    return 0;
}
