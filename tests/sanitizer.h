/*
 * tests/sanitizer.h - whether this is a sanitizer's build, where a test does less of what
 * repeats: the values are looked at in every other build, and code that has run once has been
 * looked at. One that an emulator runs (cmake/aarch64.cmake) counts as such: it is as slow.
 */
#ifndef WF_TESTS_SANITIZER_H
#define WF_TESTS_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_THREAD_SANITIZER 1
#endif
#endif
#ifndef UNDER_THREAD_SANITIZER
#define UNDER_THREAD_SANITIZER 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(WEFT_EMULATED)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER UNDER_THREAD_SANITIZER
#endif

#endif
