#include "kernels/ref/ref.h"
#include "base/log.h"
#include <omp.h>

void ops_set_threads(int n) {
    int most = omp_get_num_procs();
    if (n > most) log_once("threads", "%d threads asked for, %d used: one a processor", n, most);
    omp_set_num_threads(n > 0 && n < most ? n : most);
}

void ops_init_ref(ops *o) {
    *o = (ops){
        .name = "ref",
        .act = DT_F32,
        .weight_prepare = weight_host_prepare,
        .weight_release = weight_host_release,
        .embed = ref_embed,
        .norm = ref_norm,
        .linear = ref_linear,
        .swiglu = ref_swiglu,
        .linear_group = ops_linear_group,
        .linear_norm = ops_linear_norm,
        .moe_norm = ops_moe_norm,
        .moe_ffn = ops_moe_ffn,
        .mla_queries = ops_mla_queries,
        .mla_decode_values = ops_mla_decode_values,
        .gate_linear = ops_gate_linear,
        .rope_table = ref_rope_table,
        .rope_q = ref_rope_q,
        .kv_write = ref_kv_write,
        .latent_norm_kv_write = ref_latent_norm_kv_write,
        .absorb_q = ref_absorb_q,
        .mla_decode = ref_mla_decode,
        .unabsorb_v = ref_unabsorb_v,
        .mla_prefill = ref_mla_prefill,
        .gate = ref_gate,
        .moe = ref_moe,
        .gather = ref_gather,
        .mark_nonfinite = ref_mark_nonfinite,
        .sample = ref_sample,
        .logprobs = host_logprobs,
        .mla_decode_workspace = ref_mla_decode_workspace,
        .mla_prefill_workspace = ref_mla_prefill_workspace,
        .moe_workspace = ref_moe_workspace,
        .sample_workspace = ref_sample_workspace,
        .logprobs_workspace = host_logprobs_workspace,
    };
}
