/*
 * kernels/arguments.h - macros over a list of one to four names in parentheses, (a, b): what
 * the tables of ops by expression are expanded with (kernels/expressions.def,
 * kernels/elementwise.h).
 */
#ifndef WF_KERNELS_ARGUMENTS_H
#define WF_KERNELS_ARGUMENTS_H

#define WF_JOIN_(a, b) a##b
#define WF_JOIN(a, b)  WF_JOIN_(a, b)
#define WF_OPEN(...)   __VA_ARGS__

/* Counts the names of a list. */
#define WF_COUNT_(a, b, c, d, n, ...) n
#define WF_COUNT_OPEN(...)            WF_COUNT_(__VA_ARGS__, 4, 3, 2, 1, 0)
#define WF_COUNT(list)                WF_COUNT_OPEN list

/* do(0, a) do(1, b): each name with its index. */
#define WF_EACH_1(do, a)                                                                       \
    do                                                                                         \
    (0, a)
#define WF_EACH_2(do, a, b)                                                                    \
    do                                                                                         \
    (0, a) do(1, b)
#define WF_EACH_3(do, a, b, c)                                                                 \
    do                                                                                         \
    (0, a) do(1, b) do(2, c)
#define WF_EACH_4(do, a, b, c, d)                                                              \
    do                                                                                         \
    (0, a) do(1, b) do(2, c) do(3, d)
#define WF_EACH_CALL(each, args) each args
#define WF_EACH(do, list)        WF_EACH_CALL(WF_JOIN(WF_EACH_, WF_COUNT(list)), (do, WF_OPEN list))

/* "...,...": the part of a signature for as many operands as the list has names. */
#define WF_DOTS_1     "..."
#define WF_DOTS_2     "...,..."
#define WF_DOTS_3     "...,...,..."
#define WF_DOTS_4     "...,...,...,..."
#define WF_DOTS(list) WF_JOIN(WF_DOTS_, WF_COUNT(list))

#endif
