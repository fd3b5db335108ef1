/* tests/cuda/op_elements.c - the rows of kernels/expressions.def as cases (op_rows.h). */
#include "kernels/shared_internal.h"
#include "tests/cuda/op_rows.h"
#include <stdio.h>

#define WITH(attr) &attr, sizeof attr

#define AND_GRADIENT(name, x, y)                                                               \
    {name, x ":bsn", y ":bsn", "n", NULL, 0},                                                  \
    {                                                                                          \
        name "_grad", x ":bsn " y ":bsn", y ":bsn", "n", NULL, 0                               \
    }

void try_elements(void)
{
    static const wf_scale_attr factor = {-1.7F};
    static const wf_add_constant_attr constant = {0.7F};
    static const op_row rows[] = {
        {"add", "a:bsn a:bsn", "a:bsn", "bsn", NULL, 0},
        {"sub", "a:bsn a:bsn", "a:bsn", "sn", NULL, 0},
        {"mul", "a:bsn a:bsn", "a:bsn", "sn", NULL, 0},
        {"scale", "a:bsn", "a:bsn", "n", WITH(factor)},
        {"add_constant", "f:bsn", "f:bsn", "n", WITH(constant)},
        AND_GRADIENT("silu", "a", "a"),
        AND_GRADIENT("gelu", "a", "a"),
        {"swiglu", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"swiglu_grad", "a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

void try_expressions(void)
{
    static const float exponent[] = {2.5F}, bounds[] = {-0.5F, 0.75F}, leak[] = {0.1F};
    static const op_row rows[] = {
        AND_GRADIENT("log", "p", "f"),
        {"div", "f:bsn p:bsn", "f:bsn", "n", NULL, 0},
        {"div_grad", "f:bsn p:bsn f:bsn", "f:bsn f:bsn", "n", NULL, 0},
        AND_GRADIENT("sqrt", "p", "f"),
        AND_GRADIENT("rsqrt", "p", "f"),
        {"pow", "p:bsn", "f:bsn", "n", WITH(exponent)},
        {"pow_grad", "p:bsn f:bsn", "f:bsn", "n", WITH(exponent)},
        AND_GRADIENT("log1p", "p", "f"),
        {"leaky_relu", "a:bsn", "a:bsn", "n", WITH(leak)},
        {"leaky_relu_grad", "a:bsn a:bsn", "a:bsn", "n", WITH(leak)},
        {"elu", "a:bsn", "a:bsn", "n", WITH(leak)},
        {"elu_grad", "a:bsn a:bsn", "a:bsn", "n", WITH(leak)},
        {"axpby", "a:bsn a:bsn", "a:bsn", "n", WITH(bounds)},
        {"axpby_grad", "a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", WITH(bounds)},
        {"clamp", "a:bsn", "a:bsn", "n", WITH(bounds)},
        {"clamp_grad", "a:bsn a:bsn", "a:bsn", "n", WITH(bounds)},
        {"maximum", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"maximum_grad", "a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", NULL, 0},
        {"minimum", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"minimum_grad", "a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", NULL, 0},
        {"where", "a:bsn a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"where_grad", "a:bsn a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", NULL, 0},
        {"greater", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"greater_equal", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"equal", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"greater_than", "a:bsn", "a:bsn", "n", WITH(bounds)},
        {"less_than", "a:bsn", "a:bsn", "n", WITH(bounds)},
        {"equal_to", "a:bsn", "a:bsn", "n", WITH(bounds)},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* Rows of one operand and their gradients; those behind the empty name have none. */
void try_expressions_of_one(void)
{
    static const char *const names[] = {
        "exp", "relu",  "tanh", "sigmoid", "gelu_erf", "softplus", "abs",  "sin",   "cos",
        "erf", "expm1", "",     "floor",   "ceil",     "round",    "sign", "is_nan"};
    bool gradients = true;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[32];
        op_row rows[] = {{names[i], "a:bsn", "a:bsn", "n", NULL, 0},
                         {name, "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
                         {NULL, NULL, NULL, NULL, NULL, 0}};

        gradients = gradients && *names[i];
        snprintf(name, sizeof name, "%s_grad", names[i]);
        rows[1].op = gradients ? name : NULL;
        if (*names[i])
            try_rows(rows);
    }
}
