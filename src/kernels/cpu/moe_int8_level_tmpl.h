/* kernels/cpu/moe_int8_level_tmpl.h: a level's experts with int8 activations (behind moe_int8_tmpl.h and
 * moe_w4a8_tmpl.h), and levels that have nothing else: other formats go on to the slot that was there before. */
#include <pthread.h>

#ifdef VEC_TILES /* W4A8 alone */
static bool moe_in_int8(const ops *o, const moe_args *a) { return cpu_in_w4a8(o, a) ? w4_run(a), true : false; }
static u64 moe_in_int8_workspace(const ops *o, const moe_args *a) { return cpu_in_w4a8(o, a) ? w4_workspace(a) : 0; }
#else
/* Does the call, if its activations are int8; else returns false. */
static bool moe_in_int8(const ops *o, const moe_args *a) {
    const bool w4a8 = cpu_in_w4a8(o, a);
    if (!w4a8 && !int8_fits(a->experts, NULL)) return false;
    (w4a8 ? w4_run : int8_run)(a);
    return true;
}
/* 0 where it would not. */
static u64 moe_in_int8_workspace(const ops *o, const moe_args *a) {
    return cpu_in_w4a8(o, a) ? w4_workspace(a) : int8_fits(a->experts, NULL) ? int8_workspace(a) : 0;
}
#endif

#define DEFINE_INT8_LEVEL(NAME)                                                                                        \
    static ops NAME##_below;                                                                                           \
    static u64 NAME##_workspace(const ops *o, const moe_args *a) {                                                     \
        const u64 bytes = moe_in_int8_workspace(o, a);                                                                 \
        return bytes ? bytes : NAME##_below.moe_workspace(o, a);                                                       \
    }                                                                                                                  \
    static void NAME##_moe(const ops *o, const moe_args *a) {                                                          \
        if (!moe_in_int8(o, a)) NAME##_below.moe(o, a);                                                                \
    }                                                                                                                  \
    static void NAME##_init(ops *o, const char *name) {                                                                \
        static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; /* engines may be opened by several threads */        \
        pthread_mutex_lock(&once);                                                                                     \
        if (!NAME##_below.moe) NAME##_below = *o;                                                                      \
        pthread_mutex_unlock(&once);                                                                                   \
        o->name = name;                                                                                                \
        o->moe = NAME##_moe;                                                                                           \
        o->moe_workspace = NAME##_workspace;                                                                           \
    }
