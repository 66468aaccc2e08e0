/* cmd/quantize/folder.h: all of the new folder but its shards: config.json, the index, and what is copied. */
#ifndef CMD_QUANTIZE_FOLDER_H
#define CMD_QUANTIZE_FOLDER_H
#include "cmd/quantize/job.h"

/* The source's config.json with the quantization_config of q's format in place of its own; c: the same file, read.
 * *text is freed by the caller. */
status quantized_config(const char *source, const model_config *c, const quantizer *q, bool linears, char **text,
                        err *e);
/* Copies the source's files (tokenizer, template, configurations, code) but config.json, weights and their index, and
 * what describes the source's quantization. Folders are left out. */
status folder_copy_files(const quantize_job_file *j, err *e);
/* `text` as DST/name. A file that a run before this one has finished stays: it says the same. */
status folder_write(const quantize_job_file *j, const char *name, const char *text, u64 n, err *e);
/* Away with a file that a run before this one has finished, if there is one: it is to say something else now. */
status folder_take_back(const quantize_job_file *j, const char *name, err *e);
/* model.safetensors.index.json, which makes a checkpoint of the shards: the last file of all, but for a report with an
 * evaluation. */
status folder_write_index(const quantize_job_file *j, const quantize_plan *p, err *e);

#endif
