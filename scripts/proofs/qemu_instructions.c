/*
 * scripts/proofs/qemu_instructions.c - a plugin of qemu (docs/devel/tcg-plugins of its source)
 * that writes how many instructions a program has executed. What it takes of qemu's plugin API,
 * version 1, is declared here, since Debian has no header of it.
 */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;

enum { ADD_U64 = 0 }; /* qemu_plugin_op */

typedef void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void at_exit(qemu_plugin_id_t id, void *arg);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated *callback);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, at_exit *callback, void *arg);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int op,
                                                     void *counter, uint64_t add);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern void qemu_plugin_outs(const char *text);

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *machine, int argc, char **argv);

/* One counter for all threads: exact for a program of which one thread computes. */
static uint64_t count;

static void count_block(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &count,
                                             qemu_plugin_tb_n_insns(block));
}

static void write_count(qemu_plugin_id_t id, void *arg)
{
    char text[64];

    (void)id, (void)arg;
    snprintf(text, sizeof text, "instructions: %" PRIu64 "\n", count);
    qemu_plugin_outs(text);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *machine, int argc, char **argv)
{
    (void)machine, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_atexit_cb(id, write_count, NULL);
    return 0;
}
