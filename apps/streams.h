/* apps/streams.h - the descriptors 0 to 2 of a program. */
#ifndef WF_APPS_STREAMS_H
#define WF_APPS_STREAMS_H

/* Where one of them is closed, open /dev/null in its place: the next file would be given its number,
   and what is printed would end up in it. The first call of a main(). */
void wf_streams_open(void);

#endif
