#include "runtime/media.h"
#include "base/siphash.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct media_item {
    vision_input in;
    u64 key;
    atomic_llong holders;
    u8 patches[];
};

static u64 media_secret[2];
static void media_make_secret(void) {
    if (getrandom(media_secret, sizeof media_secret, GRND_NONBLOCK) != sizeof media_secret)
        media_secret[0] = (u64)(uintptr_t)&media_secret; /* without it the hash works as well, but can be foretold */
}

media_item *media_item_new(const vision_input *in, u64 patch_bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, media_make_secret);
    const u64 bytes = (u64)vision_patches(in) * patch_bytes;
    media_item *m = malloc(sizeof *m + bytes);
    if (!m) return NULL;
    m->in = *in;
    m->in.patches = m->patches;
    memcpy(m->patches, in->patches, bytes);
    atomic_init(&m->holders, 1);
    const u64 about[4] = {(u64)in->t, (u64)in->h, (u64)in->w, siphash(media_secret, m->patches, bytes)};
    m->key = siphash(media_secret, about, sizeof about);
    return m;
}

media_item *media_item_hold(media_item *m) {
    atomic_fetch_add(&m->holders, 1);
    return m;
}

void media_item_release(media_item *m) {
    if (m && atomic_fetch_sub(&m->holders, 1) == 1) free(m);
}

const vision_input *media_item_input(const media_item *m) { return &m->in; }
u64 media_item_key(const media_item *m) { return m->key; }
