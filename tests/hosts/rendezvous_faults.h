/* tests/hosts/rendezvous_faults.h - between these two, calls of this thread may fail. */
#ifndef WF_TESTS_HOSTS_FAILING_CALLS_H
#define WF_TESTS_HOSTS_FAILING_CALLS_H

void fail_calls_from_now_on(void);
void fail_calls_no_more(void);

#endif
