#include "runtime/pace.h"

/* At the start, and at least: fewer tokens a step hardly make it shorter, because every weight is read all the same. */
enum { FIRST = 1024, LEAST = 128, UNIT = 64 };

void pace_open(pace *p, i64 chunk, f64 stall_s) {
    *p = (pace){.chunk = chunk, .stall_s = stall_s, .allowance = min_i64(chunk, FIRST)};
}

i64 pace_allowance(const pace *p, i64 answers) { return p->stall_s > 0 && answers ? p->allowance : p->chunk; }

void pace_note(pace *p, i64 prompt, i64 answers, f64 seconds) {
    if (!answers || seconds <= 0) return;
    if (!prompt) {
        p->decode_s = p->decode_s > 0 ? 0.8 * p->decode_s + 0.2 * seconds : seconds;
        return;
    }
    f64 longest = p->decode_s + (2 * p->decode_s > p->stall_s ? 2 * p->decode_s : p->stall_s);
    if (seconds > longest) {
        i64 less = (i64)((f64)prompt * longest / seconds) / UNIT * UNIT;
        p->allowance = max_i64(min_i64(p->allowance, less), min_i64(LEAST, p->chunk));
    } else if (prompt >= p->allowance) { /* the step was full: a little more may fit */
        f64 more = longest / seconds;
        i64 next = (i64)((f64)p->allowance * (more < 1.25 ? more : 1.25)) / UNIT * UNIT;
        p->allowance = min_i64(max_i64(next, p->allowance + (more >= 1.25 ? UNIT : 0)), p->chunk);
    }
}
