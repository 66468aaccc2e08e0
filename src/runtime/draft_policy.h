/* runtime/draft_policy.h: how many drafts each of a step's answers gets: what steps cost and how many drafts come true
 * is learnt while requests run, and the numbers are chosen that give most tokens a second, none included.
 *
 * Costs are known by the number of answers and of drafts each, and before that a draft is taken to make a step a tenth
 * longer; what comes true by class of request (its kind and the length of its context) and place in the run of drafts.
 * Answers of a class get the same number. What has not been tried for a while is tried again, three steps long: plain
 * steps every 192 steps (first after eight, 16, 32, .. until their cost is known), steps with drafts every 384 where
 * plain ones are faster; every 64 steps a class that gets fewer drafts than others gets as many. */
#ifndef RUNTIME_DRAFT_POLICY_H
#define RUNTIME_DRAFT_POLICY_H
#include "model/draft.h"

enum { DRAFT_ANSWERS = 64 /* more count as so many */, DRAFT_KINDS = 3, DRAFT_CONTEXTS = 4 };

/* Greedy, drawn, or held to a grammar. */
typedef enum { DRAFT_GREEDY, DRAFT_DRAWN, DRAFT_FILTERED } draft_kind;

typedef struct {
    i64 most;    /* drafts of an answer */
    bool always; /* as many as there may be, whatever they cost */
    struct {
        f64 seconds[DRAFT_STEPS_MOST + 1]; /* of a step with so many drafts an answer, lately; 0: unknown */
        i64 seen[DRAFT_STEPS_MOST + 1];
        i64 steps, tried_plain, tried_drafts; /* the step of the last trial */
        i64 trial, trial_left;                /* a trial of so many drafts goes on for so many steps */
    } cost[DRAFT_ANSWERS + 1];
    f64 guesses; /* the part of a draft's cost that is the draft model's guess; the rest is its row in the step */
    /* Rounds in which the draft at a place was checked, and came true with all before it; older ones count less */
    f64 tried[DRAFT_KINDS][DRAFT_CONTEXTS][DRAFT_STEPS_MOST], came_true[DRAFT_KINDS][DRAFT_CONTEXTS][DRAFT_STEPS_MOST];
} draft_policy;

void draft_policy_open(draft_policy *p, i64 most, bool always);
/* A round of one answer: `n` drafts, `came_true` of which were drawn, too. */
void draft_policy_round(draft_policy *p, draft_kind kind, i64 context, i64 n, i64 came_true);
/* A step of so many answers with `rows` drafts in all, at most `most` an answer, took so long: from the results of the
 * one before to its own. Beside few rows of prompts at most, which hide what drafts cost. */
void draft_policy_step(draft_policy *p, i64 answers, i64 most, i64 rows, f64 seconds);

/* The chance that the first `place` drafts of such a request come all true. */
f64 draft_policy_chance(const draft_policy *p, draft_kind kind, i64 context, i64 place);
/* What a step of so many answers is expected to take; 0: nothing of the kind was seen yet. */
f64 draft_policy_seconds(const draft_policy *p, i64 answers, i64 drafts);

/* A number for each class: of answers, or of drafts of an answer. */
typedef struct {
    i64 of[DRAFT_KINDS][DRAFT_CONTEXTS];
} draft_classes;
i64 *draft_class(draft_classes *c, draft_kind kind, i64 context);
/* The drafts of the next step's answers, of which there are so many of each class. rows: most of a step. Returns the
 * largest number, which the draft model has to guess. */
i64 draft_policy_choose(draft_policy *p, const draft_classes *answers, i64 rows, draft_classes *drafts);

#endif
