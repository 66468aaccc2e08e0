#include "runtime/draft_policy.h"
#include <math.h>
#include <string.h>

enum { PLAIN_EVERY = 192, DRAFTS_EVERY = 384, PLAIN_FIRST = 8, TRIAL = 3 };
static const f64 FORGET = 1.0 / 512, SLOWER = 1.0 / 16, FASTER = 1.0 / 2, OUTLIER = 2;
static const f64 EACH = 0.1; /* of a step's time: what a draft more is taken to cost where that is not known */
/* Before anything is known: of real traffic, as if it had been seen in so many rounds. */
static const f64 HOPE[DRAFT_STEPS_MOST] = {0.65, 0.42, 0.28, 0.19, 0.13, 0.09, 0.06, 0.04}, HOPE_ROUNDS = 8;

void draft_policy_open(draft_policy *p, i64 most, bool always) {
    memset(p, 0, sizeof *p);
    p->most = min_i64(most, DRAFT_STEPS_MOST);
    p->always = always;
}

static int context_of(i64 tokens) { return tokens < 2048 ? 0 : tokens < 8192 ? 1 : tokens < 32768 ? 2 : 3; }
static i64 answers_at(i64 n) { return min_i64(n, DRAFT_ANSWERS); }

void draft_policy_round(draft_policy *p, draft_kind kind, i64 context, i64 n, i64 came_true) {
    f64 *tried = p->tried[kind][context_of(context)], *yes = p->came_true[kind][context_of(context)];
    for (i64 k = 0; k < min_i64(n, DRAFT_STEPS_MOST); k++) {
        tried[k] += 1 - tried[k] * FORGET;
        yes[k] += (k < came_true ? 1 : 0) - yes[k] * FORGET;
    }
}

f64 draft_policy_chance(const draft_policy *p, draft_kind kind, i64 context, i64 place) {
    const int c = context_of(context);
    return (p->came_true[kind][c][place - 1] + HOPE[place - 1] * HOPE_ROUNDS) /
           (p->tried[kind][c][place - 1] + HOPE_ROUNDS);
}

/* The first step of a shape is not like the others: a GPU records it, a team of threads grows. Steps that something
 * else made longer count little. */
void draft_policy_step(draft_policy *p, i64 answers, i64 drafts, f64 seconds) {
    f64 *known = &p->cost[answers_at(answers)].seconds[drafts];
    if (!p->cost[answers_at(answers)].seen[drafts]++) return;
    if (*known <= 0)
        *known = seconds;
    else
        *known += (fmin(seconds, OUTLIER * *known) - *known) * (seconds < *known ? FASTER : SLOWER);
}

/* Between the nearest numbers of drafts that are known; beyond them a draft more is taken to cost little, so that it is
 * tried. */
f64 draft_policy_seconds(const draft_policy *p, i64 answers, i64 drafts) {
    const f64 *s = p->cost[answers_at(answers)].seconds;
    i64 below = drafts, above = drafts;
    while (below >= 0 && s[below] <= 0) below--;
    while (above <= p->most && s[above] <= 0) above++;
    if (below >= 0 && above <= p->most) {
        const f64 part = above > below ? (f64)(drafts - below) / (f64)(above - below) : 0;
        return s[below] + (s[above] - s[below]) * part;
    }
    if (below >= 0) return s[below] * (1 + EACH * (f64)(drafts - below));
    return above <= p->most ? s[above] / (1 + EACH * (f64)(above - drafts)) : 0;
}

static f64 tokens_of(i64 drafts, const f64 *chances) {
    f64 sum = 1;
    for (i64 k = 0; k < drafts; k++) sum += chances[k];
    return sum;
}

/* Tokens of an answer a second; in the time of a step without drafts where no costs are known, as beside prompts, whose
 * rows take most of a step. */
static f64 rate_of(const draft_policy *p, i64 answers, i64 drafts, const f64 *chances) {
    const f64 seconds = draft_policy_seconds(p, answers, drafts);
    return tokens_of(drafts, chances) / (seconds > 0 ? seconds : 1 + EACH * (f64)drafts);
}

/* The best number of drafts from `least` on. */
static i64 best_drafts(const draft_policy *p, i64 answers, i64 least, i64 most, const f64 *chances) {
    i64 best = most;
    f64 rate = 0;
    for (i64 k = least; k <= most; k++) {
        const f64 r = rate_of(p, answers, k, chances);
        if (r > rate) rate = r, best = k;
    }
    return best;
}

static i64 begin_trial(draft_policy *p, i64 at, i64 drafts) {
    p->cost[at].trial = drafts, p->cost[at].trial_left = TRIAL - 1;
    return drafts;
}

i64 draft_policy_choose(draft_policy *p, i64 answers, i64 rows, const f64 chances[DRAFT_STEPS_MOST]) {
    const i64 most = min_i64(p->most, rows / max_i64(answers, 1) - 1), at = answers_at(answers);
    if (most < 1 || p->always) return max_i64(most, 0);
    const i64 step = ++p->cost[at].steps, best = best_drafts(p, answers, 0, most, chances);
    i64 *plain = &p->cost[at].tried_plain, *drafts = &p->cost[at].tried_drafts;
    if (p->cost[at].trial_left > 0) return p->cost[at].trial_left--, min_i64(p->cost[at].trial, most);
    *(best ? drafts : plain) = step;
    if (best && (step == PLAIN_FIRST || step - *plain >= PLAIN_EVERY)) return *plain = step, begin_trial(p, at, 0);
    if (best || step - *drafts < DRAFTS_EVERY) return best;
    const i64 try = best_drafts(p, answers, 1, most, chances);
    if ((f64)(step - *drafts) < DRAFTS_EVERY * rate_of(p, answers, 0, chances) / rate_of(p, answers, try, chances))
        return 0; /* the worse it was, the later it is tried again */
    *drafts = step;
    return begin_trial(p, at, try);
}
