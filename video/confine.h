/* video/confine.h: what a program that reads a stranger's file can do without. */
#ifndef VIDEO_CONFINE_H
#define VIDEO_CONFINE_H

/* Gives up, for good: memory beyond `mib` MiB, processor time beyond `seconds`, every descriptor but 0, 1 and 2, new
 * privileges, and every system call but those by which memory is had, threads are made, time is told and the three
 * descriptors are read and written: no file, socket, process or other process's memory can be had. Ends with the
 * process `parent`, which started this one. NULL, or what could not be given up. */
const char *confine(long mib, long seconds, long parent);

#endif
