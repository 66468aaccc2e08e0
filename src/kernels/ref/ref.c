#include "kernels/ref/ref.h"
#include "base/log.h"
#include <omp.h>

void ops_set_threads(int n) {
    int max_threads = omp_get_num_procs();
    if (n > max_threads) log_once("threads", "%d threads asked for, %d used: one a processor", n, max_threads);
    omp_set_num_threads(n > 0 && n < max_threads ? n : max_threads);
}

void ops_init_ref(ops *o) {
    *o = (ops){.name = "ref",
               .act = DT_F32,
               .keeps_views = true,
               .int8_mean = INT8_MEAN,
               .weight_prepare = weight_host_prepare,
               .weight_release = weight_host_release,
               .experts_replace = weight_host_replace,
#define REF_SLOT(op)           .op = ref_##op,
#define REF_WORKSPACE_SLOT(op) .op##_workspace = ref_##op##_workspace,
               OPS(REF_SLOT) OPS_WITH_WORKSPACE(REF_WORKSPACE_SLOT)
#undef REF_SLOT
#undef REF_WORKSPACE_SLOT
    };
}
