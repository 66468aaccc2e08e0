#include "kernels/backend.h"
#include "base/log.h"
#include "device/comm_nccl.h"
#include "format/requant.h"
#include "kernels/context_parallel.h"
#include "kernels/gpu/gpu.h"
#include <stdlib.h>
#include <string.h>

enum { GPUS_MOST = 64 };

/* The N of cuda:N, 0 of cuda; -1: neither. */
static int gpu_number(const char *name) {
    if (strncmp(name, "cuda", 4)) return -1;
    if (!name[4]) return 0;
    if (name[4] != ':' || !name[5] || strspn(name + 5, "0123456789") != strlen(name + 5) || strlen(name + 5) > 2)
        return -1;
    int n = atoi(name + 5);
    return n < GPUS_MOST ? n : -1;
}

bool backend_name_is_gpu(const char *name) { return name && gpu_number(name) >= 0; }

format_speed backend_format_speed(const char *name, weight_format f, bool experts) {
    if (weight_layout_of(f)->kept_as) f = weight_layout_of(f)->kept_as;
    if (weight_layout_of(f)->experts_only && !experts) return FORMAT_REFUSED;
    if (backend_name_is_gpu(name) && !gpu_takes(f)) return FORMAT_REFUSED;
    if (backend_name_is_gpu(name) && !experts && linear_on_gpu(f) != f) return FORMAT_AS_BF16;
    bool native = backend_name_is_gpu(name) ? gpu_multiplies(f, experts)
                  : !strcmp(name, "cpu")    ? cpu_multiplies(f, experts, cpu_isa())
                                            : false;
    return native ? FORMAT_NATIVE : FORMAT_EXPANDED;
}

status backend_open(backend *out, const backend_options *o, err *e) {
    *out = (backend){.device = device_host()};
    if (!strcmp(o->name, "ref")) return ops_init_ref(&out->ops), ST_OK;
    if (!strcmp(o->name, "cpu")) return ops_init_cpu(&out->ops, o->act, o->isa, e);
    if (!backend_name_is_gpu(o->name))
        return err_set(e, ST_INPUT, "--device %s is not ref, cpu, cuda or cuda:N", o->name);
    status st = gpu_open_part(&out->gpu, o->gpu ? *o->gpu : (gpu_part){gpu_number(o->name), 0, 1}, e);
    if (st == ST_OK) st = ops_init_gpu(&out->ops, out->gpu, o->act, e);
    if (st == ST_OK) out->device = gpu_device(out->gpu);
    if (st == ST_OK && o->disable_fused) out->ops.fused = NULL;
    return st == ST_OK ? ST_OK : err_prefix(e, "--device cuda");
}

status backend_comm_open(comm **out, const backend *const *all, i64 n, const comm_sizes *most, f64 deadline_s,
                         bool nccl, const host_group *others, err *e) {
    const ops *tables[COMM_RANKS_MAX];
    gpu *gpus[COMM_RANKS_MAX];
    for (i64 i = 0; i < n; i++) tables[i] = &all[i]->ops, gpus[i] = all[i]->gpu;
    if (nccl || others) return comm_nccl_open(out, gpus, n, others, deadline_s, e);
    err why = {0}, other = {0};
    status st = gpu_comm_open(out, tables, n, most, deadline_s, &why);
    if (st == ST_UNSUPPORTED) {
        st = comm_nccl_open(out, gpus, n, NULL, deadline_s, &other);
        if (st == ST_OK)
            log_warn("%s: ranks exchange by NCCL instead, whose sums have an order of their own", why.text);
        else
            st = err_set(e, ST_UNSUPPORTED, "%s; %s", why.text, other.text);
    } else if (st != ST_OK) {
        *e = why;
    }
    return st;
}

i64 backend_ranks_max(const backend *b) { return b->gpu ? GPU_RANKS_MAX : COMM_RANKS_MAX; }

static bool has_norm_seams(const backend *b, const comm *c) { return c->peer && b->ops.fused; }

norm_seams backend_norm_seams(const backend *b, const comm *c) {
    return has_norm_seams(b, c) ? (norm_seams){gpu_reduce_norm, gpu_norms_apart, gpu_part_places, gpu_share_rows}
                                : (norm_seams){0};
}

i64 backend_divides_from(const backend *b, const comm *c) {
    return has_norm_seams(b, c) ? gpu_comm_divides_from(c) : INT64_MAX;
}

i64 backend_norms_apart_from(const backend *b, const comm *c) {
    return has_norm_seams(b, c) ? gpu_comm_norms_apart_from(c) : INT64_MAX;
}

void backend_context_parallel(const backend *b, rank_seams *s) {
    if (b->gpu)
        gpu_context_parallel_seams(s);
    else
        context_parallel_seams(s);
}

void backend_close(backend *b) {
    if (b->gpu) ops_close_gpu(&b->ops);
    gpu_close(b->gpu);
    *b = (backend){.gpu = NULL};
}
