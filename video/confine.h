/* video/confine.h: what a program that reads a stranger's file can do without. */
#ifndef VIDEO_CONFINE_H
#define VIDEO_CONFINE_H

/* Gives up, for good: memory beyond `mib` MiB, processor time beyond `seconds`, every descriptor but 0, 1 and 2, new
 * privileges, opening files and sockets, starting programs; ends with the process that started this one. NULL, or what
 * could not be given up. Threads can still be made. */
const char *confine(long mib, long seconds);

#endif
