/* cmd/check_bits.h: `moonlet check bits`. */
#ifndef CMD_CHECK_BITS_H
#define CMD_CHECK_BITS_H

int cmd_check_bits(int argc, char **argv);

#endif
