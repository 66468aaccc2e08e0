/* api/run_filter.h: an answer's constraint (text/grammar/constraint.h) as the filter that the scheduler asks
 * (runtime/token_filter.h). The two rooms do not know each other; whoever has both puts this between them. */
#ifndef API_RUN_FILTER_H
#define API_RUN_FILTER_H
#include "runtime/token_filter.h"
#include "text/grammar/constraint.h"

typedef struct {
    answer_begin begin;
    i64 first_call;  /* running index of the answer's first tool call */
    const buf *text; /* that the answer has already, of a message that goes on; NULL: none */
    bool forced;     /* the filter tells which tokens must come */
} run_filter_options;

/* One answer held to c. out->close(out->ud) ends it. ST_INPUT: the text does not fit c. */
status run_filter_open(token_filter *out, constraint *c, const run_filter_options *o, err *e);

#endif
