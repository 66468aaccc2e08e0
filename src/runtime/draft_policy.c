#include "runtime/draft_policy.h"
#include <math.h>
#include <string.h>

enum { PLAIN_EVERY = 192, DRAFTS_EVERY = 384, EVEN_EVERY = 64, PLAIN_FIRST = 8, TRIAL = 3 };
static const f64 FORGET = 1.0 / 512, SLOWER = 1.0 / 16, FASTER = 1.0 / 2, OUTLIER = 2;
static const f64 EACH = 0.1;    /* of a step's time: what a draft more is taken to cost where that is not known */
static const f64 GUESSES = 0.1; /* draft_policy.guesses before anything is known */
/* Before anything is known: of real traffic, as if it had been seen in so many rounds. */
static const f64 HOPE[DRAFT_STEPS_MOST] = {0.65, 0.42, 0.28, 0.19, 0.13, 0.09, 0.06, 0.04}, HOPE_ROUNDS = 8;

void draft_policy_open(draft_policy *p, i64 most, bool always) {
    memset(p, 0, sizeof *p);
    p->most = min_i64(most, DRAFT_STEPS_MOST);
    p->always = always;
    p->guesses = GUESSES;
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

/* At place k + 1. */
static f64 chance_of(const draft_policy *p, int kind, int c, i64 k) {
    return (p->came_true[kind][c][k] + HOPE[k] * HOPE_ROUNDS) / (p->tried[kind][c][k] + HOPE_ROUNDS);
}

f64 draft_policy_chance(const draft_policy *p, draft_kind kind, i64 context, i64 place) {
    return chance_of(p, kind, context_of(context), place - 1);
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

/* The first step of a shape is not like the others: a GPU records it (of more than 64 rows the eighth, which is cut to
 * OUTLIER here; those before are 2 ms longer), a team of threads grows. Steps that something
 * else made longer count little. */
static void note_even(draft_policy *p, i64 answers, i64 drafts, f64 seconds) {
    f64 *known = &p->cost[answers_at(answers)].seconds[drafts];
    if (!p->cost[answers_at(answers)].seen[drafts]++) return;
    if (*known <= 0)
        *known = seconds;
    else
        *known += (fmin(seconds, OUTLIER * *known) - *known) * (seconds < *known ? FASTER : SLOWER);
}

/* Of an even step with so many rows of drafts: between those with whole numbers for each answer. */
static f64 even_seconds(const draft_policy *p, i64 answers, i64 rows) {
    const i64 low = rows / answers, high = min_i64(low + 1, p->most);
    const f64 part = (f64)(rows - low * answers) / (f64)answers, a = draft_policy_seconds(p, answers, low);
    return a + (draft_policy_seconds(p, answers, high) - a) * part;
}

void draft_policy_step(draft_policy *p, i64 answers, i64 most, i64 rows, f64 seconds) {
    if (4 * rows >= 3 * most * answers) {
        note_even(p, answers, most, seconds);
        return;
    }
    const f64 full = draft_policy_seconds(p, answers, most), even = even_seconds(p, answers, rows);
    if (even <= 0 || full <= even) return;
    const f64 seen = fmin(fmax((seconds - even) / (full - even), 0), 1);
    p->guesses += (seen - p->guesses) * SLOWER;
}

/* ---- Choosing ---- */

enum { CLASSES = DRAFT_KINDS * DRAFT_CONTEXTS };

/* Drafts for each class, and what they are good for. */
typedef struct {
    i64 drafts[CLASSES];
    f64 rate; /* tokens of all answers a second */
} draft_choice;

/* The answers of a step: how many of each class, and the chance of a class's draft at place k + 1. */
typedef struct {
    const draft_policy *p;
    i64 all, of[CLASSES];
    f64 chance[CLASSES][DRAFT_STEPS_MOST];
} draft_mix;

static draft_mix mix_of(const draft_policy *p, const draft_classes *answers) {
    draft_mix m = {.p = p};
    for (int c = 0; c < CLASSES; c++) {
        const int kind = c / DRAFT_CONTEXTS, context = c % DRAFT_CONTEXTS;
        m.all += m.of[c] = answers->of[kind][context];
        for (i64 k = 0; m.of[c] && k < p->most; k++) m.chance[c][k] = chance_of(p, kind, context, k);
    }
    return m;
}

/* Seconds of a step with `rows` drafts in all for which the draft model guessed `most` times. In the time of a step
 * without drafts where no costs are known, as beside prompts, whose rows take most of a step. */
static f64 seconds_of(const draft_mix *m, i64 most, i64 rows) {
    const f64 full = draft_policy_seconds(m->p, m->all, most);
    if (full <= 0) return 1 + EACH * ((f64)rows / (f64)m->all);
    const f64 even = even_seconds(m->p, m->all, rows);
    return even + m->p->guesses * fmax(full - even, 0);
}

static f64 rate_of(const draft_mix *m, const i64 drafts[CLASSES]) {
    f64 tokens = (f64)m->all;
    i64 rows = 0, most = 0;
    for (int c = 0; c < CLASSES; c++) {
        for (i64 k = 0; k < drafts[c]; k++) tokens += (f64)m->of[c] * m->chance[c][k];
        rows += m->of[c] * drafts[c];
        if (m->of[c]) most = max_i64(most, drafts[c]);
    }
    return tokens / seconds_of(m, most, rows);
}

/* At most n drafts each: the last ones of classes in which they come true least often are left out as long as that
 * gives more tokens a second. */
static draft_choice choose_upto(const draft_mix *m, i64 n) {
    draft_choice best;
    for (int c = 0; c < CLASSES; c++) best.drafts[c] = m->of[c] ? n : 0;
    best.rate = rate_of(m, best.drafts);
    for (draft_choice next = best;;) {
        int worst = -1;
        i64 deep = 0;
        for (int c = 0; c < CLASSES; c++)
            if (next.drafts[c] &&
                (worst < 0 || m->chance[c][next.drafts[c] - 1] < m->chance[worst][next.drafts[worst] - 1]))
                worst = c;
        if (worst < 0) return best;
        next.drafts[worst]--;
        for (int c = 0; c < CLASSES; c++) deep = max_i64(deep, next.drafts[c]);
        if (deep < n) return best; /* fewer guesses: another choice */
        next.rate = rate_of(m, next.drafts);
        if (next.rate > best.rate) best = next;
    }
}

/* The best from `least` drafts on; *number: of the class with most. */
static draft_choice best_choice(const draft_mix *m, i64 least, i64 most, i64 *number) {
    draft_choice best = {.rate = -1};
    for (i64 n = least; n <= most; n++) {
        const draft_choice c = choose_upto(m, n);
        if (c.rate > best.rate) best = c, *number = n;
    }
    return best;
}

static i64 begin_trial(draft_policy *p, i64 at, i64 drafts) {
    p->cost[at].trial = drafts, p->cost[at].trial_left = TRIAL - 1;
    return drafts;
}

/* What plain steps take is asked for early, and again, each time after twice as many steps, until a trial has told: in
 * a pipeline, or beside prompts, one may end without. */
static bool plain_is_due(const draft_policy *p, i64 at, i64 step) {
    const i64 last = p->cost[at].tried_plain;
    const bool asked = last && p->cost[at].seconds[0] > 0;
    return step - last >= (asked ? PLAIN_EVERY : min_i64(max_i64(PLAIN_FIRST, last), PLAIN_EVERY));
}

/* As many drafts for all as the trial under way, or one that is due now, asks for; -1: none. */
static i64 trial_of(draft_policy *p, const draft_mix *m, i64 most, i64 best, f64 plain_rate) {
    const i64 at = answers_at(m->all), step = ++p->cost[at].steps;
    i64 *plain = &p->cost[at].tried_plain, *drafts = &p->cost[at].tried_drafts, number = 0;
    if (p->cost[at].trial_left > 0) return p->cost[at].trial_left--, min_i64(p->cost[at].trial, most);
    *(best ? drafts : plain) = step;
    if (best && plain_is_due(p, at, step)) return *plain = step, begin_trial(p, at, 0);
    if (best && step % EVEN_EVERY == 0) return best;
    if (best || step - *drafts < DRAFTS_EVERY) return -1;
    const draft_choice c = best_choice(m, 1, most, &number);
    if ((f64)(step - *drafts) < DRAFTS_EVERY * plain_rate / c.rate) return -1; /* the worse, the later again */
    return *drafts = step, begin_trial(p, at, number);
}

i64 *draft_class(draft_classes *c, draft_kind kind, i64 context) { return &c->of[kind][context_of(context)]; }

i64 draft_policy_choose(draft_policy *p, const draft_classes *answers, i64 rows, draft_classes *drafts) {
    const draft_mix m = mix_of(p, answers);
    const i64 most = min_i64(p->most, rows / max_i64(m.all, 1) - 1), none[CLASSES] = {0};
    i64 number = 0, even = p->always ? max_i64(most, 0) : 0; /* -1: not the same for all */
    draft_choice best = {.rate = 0};
    if (most >= 1 && !p->always && m.all) {
        best = best_choice(&m, 0, most, &number);
        even = trial_of(p, &m, most, number, rate_of(&m, none));
    }
    const i64 of_all = even < 0 ? number : even;
    for (int c = 0; c < CLASSES; c++) /* an answer may be of another class by then */
        drafts->of[c / DRAFT_CONTEXTS][c % DRAFT_CONTEXTS] = even < 0 && m.of[c] ? best.drafts[c] : of_all;
    return of_all;
}
