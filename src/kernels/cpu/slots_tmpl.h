/* kernels/cpu/slots_tmpl.h: puts one level's functions into the table. */

static void fill_slots(ops *o, const char *name) {
    o->name = name;
    o->embed = embed;
    o->norm = norm;
    o->linear = linear;
    o->swiglu = swiglu;
    o->rope_q = rope_q;
    o->kv_write = kv_write;
    o->absorb_q = absorb_q;
    o->mla_decode = mla_decode;
    o->unabsorb_v = unabsorb_v;
    o->mla_prefill = mla_prefill;
    o->heads_write = heads_write;
    o->heads_decode = heads_decode;
    o->moe = moe;
    o->sum_pairs = sum_pairs;
    o->gather = gather;
    o->mark_nonfinite = check_finite;
    o->pixel_rows = pixel_rows;
    o->patch_position = patch_position;
    o->layer_norm = layer_norm;
    o->bias_act = bias_act;
    o->vision_rope = vision_rope;
    o->vision_attention = vision_attention;
    o->patch_merge = patch_merge;
    o->mla_decode_workspace = mla_decode_workspace;
    o->mla_prefill_workspace = mla_prefill_workspace;
    o->heads_decode_workspace = heads_decode_workspace;
    o->moe_workspace = moe_workspace;
}
