/* cmd/serve/elsewhere.h: what users of other servers write, and what `moonlet serve` makes of it. */
#ifndef CMD_SERVE_ELSEWHERE_H
#define CMD_SERVE_ELSEWHERE_H
#include "base/opt.h"

/* Beside model_elsewhere (cmd/lib/model_opts.h). */
extern const opt_elsewhere serve_elsewhere[];
extern const size_t n_serve_elsewhere;

#endif
