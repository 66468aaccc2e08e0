#include "runtime/prefill_budget.h"

/* At the start, and at least: fewer tokens a step hardly make it shorter, because every weight is read all the same. */
enum { FIRST = 1024, LEAST = 128, UNIT = 64 };

void prefill_budget_open(prefill_budget *p, i64 chunk, f64 stall_s) {
    *p = (prefill_budget){.chunk = chunk, .stall_s = stall_s, .allowance = min_i64(chunk, FIRST), .share = 1};
}

i64 prefill_budget_allowance(prefill_budget *p, i64 answers, i64 waiting) {
    if (p->stall_s <= 0 || !answers) return p->chunk;
    p->share = waiting > answers ? (f64)waiting / (f64)answers : 1;
    f64 n = (f64)p->allowance * p->share;
    return n < (f64)p->chunk ? (i64)n : p->chunk;
}

/* What a step takes grows with its prompt tokens, over what the same step takes without: so that is what is scaled. */
void prefill_budget_note(prefill_budget *p, i64 prompt, i64 answers, f64 seconds) {
    if (!answers || seconds <= 0) return;
    if (!prompt) {
        p->decode_s = p->decode_s > 0 ? 0.8 * p->decode_s + 0.2 * seconds : seconds;
        return;
    }
    f64 longest = (3 * p->decode_s > p->stall_s ? 3 * p->decode_s : p->stall_s) * p->share,
        own = (f64)prompt / p->share;
    f64 fits = seconds > p->decode_s ? (longest - p->decode_s) / (seconds - p->decode_s) : 2;
    if (seconds > longest) {
        i64 less = (i64)(own * fits) / UNIT * UNIT;
        p->allowance = max_i64(min_i64(p->allowance, less), min_i64(LEAST, p->chunk));
    } else if (own >= (f64)p->allowance - 1) { /* the step was full: a little more may fit */
        i64 next = (i64)((f64)p->allowance * (fits < 1.25 ? fits : 1.25)) / UNIT * UNIT;
        p->allowance = min_i64(max_i64(next, p->allowance + (fits >= 1.25 ? UNIT : 0)), p->chunk);
    }
}
