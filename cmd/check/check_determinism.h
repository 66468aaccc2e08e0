/* cmd/check/check_determinism.h: `moonlet check bits`. */
#ifndef CMD_CHECK_CHECK_DETERMINISM_H
#define CMD_CHECK_CHECK_DETERMINISM_H

int cmd_check_bits(int argc, char **argv);

#endif
