/* text/grammar/matcher_internal.h: a matcher's inside.
 *
 * A frame is a place in the grammar with the frame that it is part of. Frames never change and equal ones exist once,
 * so stacks share what they have in common. What waits for a byte is a lexeme, a string or a key; all others wait for
 * what is above them. */
#ifndef TEXT_GRAMMAR_MATCHER_INTERNAL_H
#define TEXT_GRAMMAR_MATCHER_INTERNAL_H
#include "text/grammar/matcher.h"

typedef enum {
    FRAME_END, /* number 0: the text is whole */
    FRAME_LEXEME,
    FRAME_STRING,
    FRAME_KEY, /* of the object below it */
    FRAME_SEQ,
    FRAME_REPEAT,
    FRAME_OBJECT,
    FRAME_ARRAY
} frame_kind;

typedef enum { OPENED, BEFORE_MEMBER, BEFORE_COLON, BEHIND_COLON, BEHIND_MEMBER, CLOSING } container_phase;

typedef struct {
    frame_kind kind;
    i32 parent, node;
    i32 at;    /* a dfa's state; the child of a sequence; a container's phase */
    i32 quote; /* of strings and keys: string_place packed; of an object behind a key: the node of its value */
    i32 seen;  /* of an object: the set of properties that it has, matcher.sets */
    i64 count; /* characters, rounds, members or items: as far as somebody asks */
    i64 other; /* of an array: items that are also `contains`; of an object: members that no property names */
} frame;

typedef struct {
    i64 n, cap, slots; /* slots: of the hash table, a power of two */
    i32 *table;        /* number + 1; 0: free */
} interned;

/* Of tokens that may follow a state (token_trie.h): enough for the answers that are written at a time. */
enum { MASKS_KEPT = 128 };
typedef struct {
    u64 *mask;
    const void *of; /* the tree; NULL: none */
    size_t bytes;
    i32 state;
} kept_mask;

/* A node and the frame that it was entered for, in a step. */
typedef struct {
    u64 key;
    u32 step;
} entered_node;

struct matcher {
    grammar *g;
    frame *frames;
    interned frames_at;
    /* States: of[first[s], first[s + 1]) are the frames of state s that wait for a byte, ascending. */
    i32 *of;
    i64 *first, n_of, of_cap;
    u64 (*bytes)[4]; /* of each state: the set of those that may follow, at most */
    i64 bytes_cap;
    interned states_at;
    u64 *sets; /* sets of properties, set_words[i] words each, behind each other */
    i64 *set_first, n_set_words, set_words_cap;
    interned sets_at;
    /* Steps taken before: (state << 8 | byte) + 1 and what they led to. */
    u64 *step_keys;
    i32 *step_to;
    i64 n_steps, step_slots;
    /* The state that is being put together, and nodes entered for it, which are not entered twice. */
    i32 *next;
    i64 n_next, next_cap;
    entered_node *entered;
    i64 n_entered, depth;
    u32 step; /* of entered_node */
    kept_mask masks[MASKS_KEPT];
    u32 n_masks; /* made */
    err failed;
};

/* What is known of a dfa's state, NULL: out of memory; the bytes that it lets through join a set. */
grammar_dfa_state *matcher_dfa_state(matcher *m, i32 dfa, i32 state);
void matcher_dfa_bytes(matcher *m, i32 dfa, i32 state, u64 set[4]);
void string_bytes(matcher *m, const frame *f, u64 set[4]); /* those that may follow in a string or a key, at most */

/* A place in a string or a key from which any text may follow, but for its length? */
bool frame_takes_any_text(matcher *m, const frame *f);
bool string_is_in_text(const frame *f); /* behind its quote, not in an escape */
/* Characters that such a string may have from here on; and the place behind a text. */
i64 frame_room(const matcher *m, const frame *f);
frame frame_behind(const matcher *m, const frame *f, const u8 *text, i32 n, i64 chars); /* text [n], of `chars` */
i32 matcher_state_of(matcher *m, const frame *frames, i64 n); /* the state in which these wait */

/* For matcher.c's parts: */
i32 matcher_frame(matcher *m, const frame *f); /* its number, -1: failed */
void matcher_wait(matcher *m, const frame *f); /* f waits for the next byte */
void matcher_enter(matcher *m, i32 node, i32 parent);
void matcher_leave(matcher *m, i32 number);                         /* what stood above frame `number` is whole */
i32 matcher_set_with(matcher *m, i32 set, i64 words, i32 property); /* the set and one more */
bool matcher_set_has(const matcher *m, i32 set, i32 property);
void matcher_fails(matcher *m, status st, const char *what);

void string_step(matcher *m, const frame *f, u8 byte);
void key_step(matcher *m, const frame *f, u8 byte);
void object_enter(matcher *m, i32 node, i32 parent);
void object_leave(matcher *m, const frame *f);
void array_enter(matcher *m, i32 node, i32 parent);
void array_leave(matcher *m, const frame *f);

#endif
