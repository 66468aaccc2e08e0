/* cmd/tune/tune.h: what `moonlet tune` tunes; each takes argv with argv[0] its own name. */
#ifndef CMD_TUNE_TUNE_H
#define CMD_TUNE_TUNE_H

int tune_gemm(int argc, char **argv);

#endif
