/*
 * core/memory/poison_internal.h - under AddressSanitizer, memory that a pool holds and has not
 * given out is out of bounds, as it would be after free. Without it these are nothing. Not
 * installed.
 */
#ifndef WF_CORE_MEMORY_POISON_INTERNAL_H
#define WF_CORE_MEMORY_POISON_INTERNAL_H

#if defined(__SANITIZE_ADDRESS__)
#define WF_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WF_ASAN 1
#endif
#endif

#ifdef WF_ASAN
#include <sanitizer/asan_interface.h>
#define WF_POISON(at, bytes)   ASAN_POISON_MEMORY_REGION(at, bytes)
#define WF_UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#define WF_READS_POISON        __attribute__((no_sanitize_address))
#else
#define WF_POISON(at, bytes)   ((void)(at), (void)(bytes))
#define WF_UNPOISON(at, bytes) ((void)(at), (void)(bytes))
#define WF_READS_POISON
#endif

#endif
