/* cmd/quantize/report.h: what the new values are off by: DST/quantize-report.md, and a picture of it by layer. */
#ifndef CMD_QUANTIZE_REPORT_H
#define CMD_QUANTIZE_REPORT_H
#include "cmd/lib/compare_formats.h"
#include "cmd/quantize/job.h"

/* ||w - written|| / ||w||, of Frobenius norms; 0 where nothing was written anew. */
f64 sums_error(const quantize_sums *s);
/* Of all matrices that q wrote: those of the classes that are chosen. */
quantize_sums chosen_sums(const sums_table *t, bool linears);

/* c: the source beside the new folder, as they predict a text; NULL: not compared. */
status report_write(const quantize_job_file *j, const sums_table *t, const quantizer *q, bool linears,
                    const comparison *c, err *e);
/* The error of each class by layer, as an SVG that needs nothing else. */
void error_chart(const sums_table *t, const char *title, buf *out);

#endif
