/* server/server.h: `moonlet serve`: one model behind OpenAI's and SGLang's HTTP interfaces. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H
#include "api/remote_media.h"
#include "media/video.h"
#include "runtime/scheduler.h"
#include "server/http/http_limits.h"
#include "server/http/origin.h"
#include "text/grammar/grammar.h"

/* Prompts and answers in servers of their own (src/server/kv/): one computes prompts for others, the other has them
 * computed. */
typedef enum { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE } server_role;

typedef struct {
    server_role role;
    const char *const *prefill_urls; /* [n_prefill_urls], ROLE_DECODE */
    int n_prefill_urls;
    f64 prefill_silence_s;             /* a server from which nothing comes for so long is lost */
    engine_options engine;             /* max_running >= 1 */
    scheduler_options sched;           /* its callback is the server's */
    const char *template;              /* chat template; NULL: the one the model's folder asks for */
    const char *host, *name, *api_key; /* name NULL: the folder's last part; api_key NULL: none is asked for */
    i64 port;                          /* 0: any free one */
    bool parse_calls, parse_reasoning, log_requests, any_model, incremental;
    json_form json_form;              /* of answers that are held to a schema */
    bool skip_warm_up;                /* on a GPU: no steps before the first request */
    bool disable_jump_forward;        /* text that a grammar forces is drawn token by token like any other */
    f64 request_timeout_s;            /* 0: none */
    f64 watchdog_s;                   /* /health fails when requests run and no step has ended for so long */
    f64 drain_s;                      /* after SIGTERM running answers have this long to end */
    i64 picture_pixels, picture_most; /* of a picture; pictures and videos of a request */
    i64 video_seconds;                /* processor time for decoding one */
    video_limits video;
    remote_rules remote; /* where pictures are fetched from; n 0: nowhere */
    i64 body_max;
    i64 connections;           /* most that are open; 0: 1024, or fewer where ulimit -n says so */
    http_limit_options limits; /* 0: 60 s, 10 s, 1 KiB/s; 512 MiB or four times the longest body or prompt */
    i64 requests_max;          /* on a connection; 0: 1000 */
    origin_rules origin;       /* which pages a browser may let in */
} server_options;

/* Loads the model, serves until SIGTERM or SIGINT, drains, frees. Prints the memory plan on stderr and, when requests
 * can come, one line "moonlet serve: ready on URL (...)" on stdout. A second signal ends the wait for running
 * answers, a third one the process. */
status server_run(const server_options *o, err *e);

#endif
