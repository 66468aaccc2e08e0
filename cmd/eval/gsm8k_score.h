/* cmd/eval/gsm8k_score.h: GSM8K answers scored as lm-evaluation-harness scores them (task gsm8k, version 3: filters
 * strict-match and flexible-extract, metric exact_match). Pure functions on text. */
#ifndef CMD_EVAL_GSM8K_SCORE_H
#define CMD_EVAL_GSM8K_SCORE_H
#include "base/buf.h"

/* strict-match: the first match of `#### (\-?[0-9\.\,]+)`; "[invalid]" without one. Appended to *out. */
void gsm8k_strict(const char *answer, size_t len, buf *out);
/* flexible-extract: the last match of `(-?[$0-9.,]{2,})|(-?[0-9]+)`; "[invalid]" without one. */
void gsm8k_flexible(const char *answer, size_t len, buf *out);
/* exact_match: equal after both lost commas, dollar signs, everything up to the last "#### " and one full stop at the
 * end, letters in lower case. `target` is the whole answer of the data. False when out of memory. */
bool gsm8k_match(const char *prediction, const char *target);
/* The standard error of a mean of n zeros and ones, `right` of them ones: sqrt(p (1 - p) / (n - 1)); NAN for n < 2. */
f64 gsm8k_stderr(i64 right, i64 n);

#endif
