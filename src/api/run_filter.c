#include "api/run_filter.h"

static status filter_mask(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    return constraint_run_mask(ud, state, mask, may_end, e);
}

static i32 filter_next(void *ud, i32 state, i32 id) { return constraint_run_next(ud, state, id); }

static i64 filter_forced(void *ud, i32 state, i32 *ids, i64 most) {
    return constraint_run_forced(ud, state, ids, most);
}

static void filter_close(void *ud) { constraint_run_close(ud); }

status run_filter_open(token_filter *out, constraint *c, const run_filter_options *o, err *e) {
    constraint_run *run;
    status st = constraint_run_open(&run, c, o->begin, o->first_call, e);
    if (st != ST_OK) return st;
    i32 start = constraint_run_start(run);
    if (o->text && o->text->len) start = constraint_run_next_text(run, start, o->text->data, o->text->len);
    *out = (token_filter){.ud = run,
                          .start = start,
                          .mask = filter_mask,
                          .next = filter_next,
                          .forced = o->forced ? filter_forced : NULL,
                          .close = filter_close};
    if (start != RUN_DEAD) return ST_OK;
    constraint_run_close(run);
    return err_set(e, ST_INPUT, "the message that goes on is no beginning of what the answer must be");
}
