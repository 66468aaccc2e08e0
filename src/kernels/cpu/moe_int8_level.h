/* kernels/cpu/moe_int8_level.h: a level that has experts of four and eight bits alone (behind moe_int8_tmpl.h); other
 * formats go on to the slot that was there before. */
#include <pthread.h>

#define DEFINE_INT8_LEVEL(NAME)                                                                                        \
    static ops NAME##_below;                                                                                           \
    static u64 NAME##_workspace(const ops *o, const moe_args *a) {                                                     \
        return int8_fits(a->experts, NULL) ? int8_workspace(a) : NAME##_below.moe_workspace(o, a);                     \
    }                                                                                                                  \
    static void NAME##_moe(const ops *o, const moe_args *a) {                                                          \
        if (int8_fits(a->experts, NULL))                                                                               \
            int8_run(a);                                                                                               \
        else                                                                                                           \
            NAME##_below.moe(o, a);                                                                                    \
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
