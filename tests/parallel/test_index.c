/* tests/parallel/test_index.c - the index of a checkpoint: hostile ones, and our own. */
#include "core/files/checksum_internal.h"
#include "parallel/checkpoint/index_internal.h"
#include "tests/parallel/hostile.h"
#include <stdint.h>

/* An index of two tensors on a mesh of 4 x 2. */
static const char good[] =
    "{\"format\": \"weft-checkpoint-2\", \"checksum\": \"0000000000000000\", "
    "\"kind\": \"sharded\", \"step\": 20, \"sequences\": 640, \"digest\": "
    "\"00000000000000ff\", "
    "\"files\": 8, \"bytes\": 4096, \"files_checksum\": \"123456789abcdef0\", "
    "\"strategy\": \"full_shard\", \"mesh\": [{\"name\": \"shard\", \"size\": 4, "
    "\"fine\": true}, {\"name\": \"tp\", \"size\": 2, \"fine\": false}], "
    "\"options\": {\"lr\": \"0.001\", \"arch\": \"gpt2\"}, \"tensors\": ["
    "{\"path\": \"a.weight\", \"kinds\": [\"\", \"m\", \"v\"], \"shape\": [64, 30], "
    "\"grain\": [16, 1], \"layout\": [[\"tp\", \"shard\"], []]}, "
    "{\"path\": \"b\", \"kinds\": [\"\"], \"shape\": [], \"grain\": [], \"layout\": []}]}";

/* Hostile changes of an index: a text, its replacement, and the reason given. */
/* The value of parameter "a", a number, and a state of it, a vector. */
#define VALUE                                                                                  \
    "{\"path\": \"a\", \"kinds\": [\"\"], \"shape\": [], \"grain\": [], \"layout\": []}"
#define STATE(kind, size)                                                                      \
    "{\"path\": \"a\", \"kinds\": [\"" kind "\"], \"shape\": [" size "], \"grain\": [1], "     \
    "\"layout\": [[]]}"

static const struct {
    const char *from, *to, *why;
} hostile[] = {
    {"weft-checkpoint-2", "weft-checkpoint-3", "this version reads"},
    {"\"format\"", "\"x\"", "\"format\" is missing"},
    {"\"weft-checkpoint-2\"", "1", "\"format\" is no text"},
    {"\"sharded\"", "\"shared\"", "its kind"},
    {"\"sharded\"", "7", "\"kind\" is no text"},
    {"\"kind\"", "\"step\"", "duplicate"},
    {": 20,", ": -1,", "\"step\" is -1"},
    {": 20,", ": 20.5,", "no whole number"},
    {": 20,", ": 1e1,", "no whole number"},
    {": 20,", ": \"20\",", "no whole number"},
    {": 20,", ": 9223372036854775808,", "no JSON"},
    {": 20,", ": 9223372036854775807,", "\"step\" is 9223372036854775807"},
    {": 20,", ": 1000000000000000,", "\"step\" is 1000000000000000"},
    {": 640,", ": 9223372036854775807,", "\"sequences\" is 9223372036854775807"},
    {": 640,", ": -640,", "\"sequences\""},
    {"00000000000000ff", "00000000000000fg", "16 hexadecimal"},
    {"00000000000000ff", "ff", "16 hexadecimal"},
    {"00000000000000ff", "00000000000000FF", "16 hexadecimal"},
    {"00000000000000ff", "00000000000000ff0", "too long"},
    {"\"00000000000000ff\"", "255", "no text"},
    {": 8,", ": -8,", "\"files\" is -8"},
    {": 8,", ": 2000000,", "\"files\" is 2000000"},
    {": 8,", ": 0,", "\"files\" is 0"},
    {": 8,", ": 7,", "not as many"},
    {"\"sharded\"", "\"full\"", "not as many"},
    {"full_shard", "full\\u009bshard", "control characters"},
    {": 4096,", ": 9223372036854775807,", "\"bytes\""},
    {"123456789abcdef0", "", "16 hexadecimal"},
    {"full_shard", "full_shard full_shard full_shard full_shard full_shard full_shard", "long"},
    {"full_shard", "full\\u0007shard", "control characters"},
    {"\"shard\", \"size\"", "\"tp\", \"size\"", "same name"},
    {"\"shard\", \"size\"", "\"a-name-that-is-too-long\", \"size\"", "too long"},
    {"\"size\": 4", "\"size\": 0", "\"size\" is 0"},
    {"\"size\": 4", "\"size\": -4", "\"size\" is -4"},
    {"\"size\": 4", "\"size\": 1048576", "too many ranks"},
    {"\"size\": 4", "\"size\": 2147483648", "\"size\" is 2147483648"},
    {"\"size\": 4", "\"size\": null", "\"size\" is missing"},
    {"\"fine\": true", "\"fine\": 1", "neither true nor false"},
    {", \"fine\": true", "", "\"fine\" is missing"},
    {"\"mesh\": [", "\"mesh\": [1, ", "\"name\" is missing"},
    {"\"mesh\": [", "\"mesh\": [{}, {}, {}, {}, {}, {}, {}, ", "\"mesh\" has 9 entries"},
    {"\"lr\": \"0.001\"", "\"lr\": 0.001", "an option is no text"},
    {"\"lr\"", "\"\"", "an option"},
    {"\"lr\"", "\"arch\"", "duplicate"},
    {"{\"lr\": \"0.001\", \"arch\": \"gpt2\"}", "[]", "\"options\" is no object"},
    {"\"tensors\": [", "\"tensors\": [7, ", "\"path\" is missing"},
    {"\"tensors\": [", "\"tensors\": [{}, ", "\"path\" is missing"},
    {"\"a.weight\"", "\"\"", "order of their paths"},
    {"\"a.weight\"", "\"b\"", "the same kind"},
    {"\"tensors\": [", "\"tensors\": [" VALUE ", " STATE("s", "3") ", " STATE("v", "2") ", ",
     "order of their kinds"},
    {"\"tensors\": [", "\"tensors\": [" STATE("v", "2") ", ", "no values"},
    {"\"a.weight\"", "\"c\"", "order of their paths"},
    {"\"a.weight\"", "\"a\\n\"", "control characters"},
    {"\"a.weight\"", "\"\\u0000\"", "no JSON"},
    {"[\"\", \"m\", \"v\"]", "[\"\", \"m\", \"m\"]", "the kinds"},
    {"[\"\", \"m\", \"v\"]", "[\"m\", \"v\"]", "no values"},
    {"[\"\", \"m\", \"v\"]", "[\"\", \"w\"]", "the kinds"},
    {"[\"\", \"m\", \"v\"]", "[\"\", 1]", "the kinds"},
    {"[\"\", \"m\", \"v\"]", "[]", "\"kinds\" has 0"},
    {"[\"\", \"m\", \"v\"]", "\"m\"", "\"kinds\" is no list"},
    {"[64, 30]", "[64, -30]", "a size"},
    {"[64, 30]", "[64, 30.0]", "a size"},
    {"[64, 30]", "[64, 1099511627777]", "a size"},
    {"[64, 30]", "[1099511627776, 1099511627776]", "2^56"},
    {"[64, 30]", "[64]", "\"grain\" has 2"},
    {"[64, 30]", "[64, 30, 1]", "\"grain\" has 2"},
    {"[64, 30]", "[1, 1, 1, 1, 1, 1, 1]", "\"shape\" has 7"},
    {"[64, 30]", "[65, 30]", "grain of a tensor"},
    {"[16, 1]", "[16, 0]", "grain of a tensor"},
    {"[16, 1]", "[-16, 1]", "grain of a tensor"},
    {"[16, 1]", "[128, 1]", "grain of a tensor"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\", \"shard\"]]", "\"layout\" has 1"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\", \"shard\"], \"tp\"]", "no list of axes"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\"], [\"tp\"]]", "an axis twice"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\", \"dp\"], []]", "an axis twice"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\", 1], []]", "an axis twice"},
    {"[[\"tp\", \"shard\"], []]", "[[\"tp\", \"shard\", \"tp\"], []]", "no list of axes"},
    {"[[\"tp\", \"shard\"], []]", "[[\"shard\", \"tp\"], []]", "cuts between grains"},
    {"[[\"tp\", \"shard\"], []]", "[[[]], []]", "deeper"},
    {"[[\"tp\", \"shard\"], []]", "[[[[]]], []]", "deeper"},
    {"\"layout\": []}]}", "\"layout\": []}]} {}", "no JSON"},
    {"\"layout\": []}]}", "\"layout\": []}]", "no JSON"},
};

/* `good` with one piece replaced, signed anew. Owner: caller. */
static char *changed(const char *from, const char *to, int sign)
{
    const char *at = strstr(good, from);
    char *text = malloc(sizeof good + strlen(to)), digits[WF_CHECKSUM_TEXT];
    uint64_t checksum;
    size_t offset;

    CU_ASSERT_FATAL(at && text);
    sprintf(text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    offset = wf_index_checksum_offset(text, strlen(text));
    if (sign && offset) {
        CU_ASSERT_EQUAL(wf_index_checksum(text, strlen(text), offset, &checksum), WF_OK);
        memcpy(text + offset, wf_checksum_print(checksum, digits), sizeof digits - 1);
    }
    return text;
}

static wf_status parse_text(const char *text, wf_error *error)
{
    wf_index index;

    return wf_index_parse(&index, "the index", text, strlen(text), error);
}

static void hostile_indices_are_refused(void)
{
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        char *text = changed(hostile[i].from, hostile[i].to, 1);
        double start = wf_test_clock(CLOCK_PROCESS_CPUTIME_ID);
        wf_error error = {WF_OK, ""};
        wf_status status = parse_text(text, &error);

        refused(text, status, &error, hostile[i].why, start);
        CU_ASSERT(strstr(error.text, "the index") != NULL);
        free(text);
    }
}

static wf_index read_good(void)
{
    char *text = changed("}", "}", 1);
    wf_error error = {WF_OK, ""};
    wf_index index;

    CU_ASSERT_EQUAL_FATAL(wf_index_parse(&index, "i", text, strlen(text), &error), WF_OK);
    free(text);
    return index;
}

static void a_good_index_is_read(void)
{
    wf_index index = read_good();
    const wf_index_tensor *a = wf_index_find(&index, "a.weight");

    CU_ASSERT(index.kind == WF_INDEX_SHARDED && index.step == 20 && index.sequences == 640);
    CU_ASSERT(index.digest == 0xff && index.files == 8 && index.bytes == 4096);
    CU_ASSERT(index.files_checksum == 0x123456789abcdef0u);
    CU_ASSERT(index.mesh.n_axes == 2 && index.mesh.fine[0] && !index.mesh.fine[1]);
    CU_ASSERT_STRING_EQUAL(wf_index_option(&index, "arch"), "gpt2");
    CU_ASSERT(wf_index_option(&index, "nothing") == NULL);
    CU_ASSERT_FATAL(a && index.count == 2);
    CU_ASSERT(a->kinds == 7 && a->dim[0].size == 64 && a->dim[0].grain == 16);
    CU_ASSERT(a->layout.n_axes[0] == 2 && a->layout.axis[0][0] == 1 && !a->layout.axis[0][1]);
    CU_ASSERT(wf_index_find(&index, "c") == NULL);
    wf_index_close(&index);
}

/* States of shapes of their own come behind the parameter, and are found by their kinds. */
static void states_have_shapes(void)
{
    char *text =
        changed("\"tensors\": [",
                "\"tensors\": [" VALUE ", " STATE("v", "2") ", " STATE("s", "3") ", ", 1);
    wf_error error = {WF_OK, ""};
    const wf_index_tensor *t;
    wf_index index;

    CU_ASSERT_EQUAL_FATAL(wf_index_parse(&index, "i", text, strlen(text), &error), WF_OK);
    CU_ASSERT(index.count == 5 && wf_index_parameters(&index) == 3);
    t = wf_index_find(&index, "a");
    CU_ASSERT(t && t->kinds == 1 && t->ndim == 0);
    t = wf_index_find_kinds(&index, "a", 1 << 3);
    CU_ASSERT(t && t->kinds == 8 && t->ndim == 1 && t->dim[0].size == 3);
    CU_ASSERT(!wf_index_find_kinds(&index, "a", 2) && !wf_index_find_kinds(&index, "c", 1));
    wf_index_close(&index);
    free(text);
}

/* Any one bit of an index that changes is found. */
static void every_flipped_bit_is_found(void)
{
    char *text = changed("}", "}", 1);
    size_t n = strlen(text);

    for (size_t bit = 0; bit < 8 * n; bit++) {
        wf_error error = {WF_OK, ""};
        wf_index index;

        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        CU_ASSERT_EQUAL(wf_index_parse(&index, "i", text, n, &error), WF_EDATA);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut < n; cut++) {
        wf_error error = {WF_OK, ""};
        wf_index index;

        CU_ASSERT_EQUAL(wf_index_parse(&index, "i", text, cut, &error), WF_EDATA);
    }
    free(text);
}

/* An index of format 1 is read, known by its cuts, and stays what it is. */
static void format_1_is_read(void)
{
    char *text = changed("weft-checkpoint-2", "weft-checkpoint-1", 1), *again = NULL;
    wf_error error = {WF_OK, ""};
    wf_index index;
    size_t n = 0;

    CU_ASSERT_EQUAL_FATAL(wf_index_parse(&index, "i", text, strlen(text), &error), WF_OK);
    CU_ASSERT(index.mesh.nested);
    CU_ASSERT_EQUAL(wf_index_format(&index, &again, &n, &error), WF_OK);
    CU_ASSERT(again && n == strlen(text) && memcmp(text, again, n) == 0);
    wf_index_close(&index);
    free(again);
    free(text);
}

/* Text to index to text: the same bytes. */
static void an_index_comes_back(void)
{
    char *text = changed("}", "}", 1), *again;
    wf_index index = read_good();
    wf_error error = {WF_OK, ""};
    size_t n;

    CU_ASSERT(!index.mesh.nested);

    CU_ASSERT_EQUAL_FATAL(wf_index_format(&index, &again, &n, &error), WF_OK);
    CU_ASSERT(n == strlen(text) && memcmp(text, again, n) == 0);
    free(again);
    free(index.tensor[0].path);
    index.tensor[0].path = strdup("z"); /* out of order: it could not be read again */
    CU_ASSERT_EQUAL(wf_index_format(&index, &again, &n, &error), WF_EDATA);
    CU_ASSERT(again == NULL);
    wf_index_close(&index);
    free(text);
}

static void large_indices_are_bounded(void)
{
    static const large_text large[] = {
        {"{\"checksum\": \"0000000000000000\", \"tensors\": [", "{\"a\": \"0123456789\"}", "]}",
         "does not match", 340000},
        {"{\"tensors\": [", "0", "]}", "more values", 8000000},
        {"{\"tensors\": [", "[1234]", "]}", "its checksum is missing", 1000000},
        {"{\"tensors\": [", "{\"a\": []}", "]}", "more values", 1000000},
        {"{\"a\": ", "[", "", "deeper", 8000000},
        {"{\"a\": \"", "abcdefg", "\"}", "too large", 2500000},
    };
    double grown =
        refuse_large(large, sizeof large / sizeof *large, WF_INDEX_BYTES, parse_text);

    CU_ASSERT(UNDER_SANITIZER || grown < 16);
}

/* All of it, with zeros where the checksum stands: what files on disks have. */
static void its_checksum_is_of_the_whole(void)
{
    uint64_t checksum = 0;
    size_t bytes = strlen(good), offset = wf_index_checksum_offset(good, bytes);

    CU_ASSERT_EQUAL(wf_index_checksum(good, bytes, offset, &checksum), WF_OK);
    CU_ASSERT_EQUAL(checksum, wf_checksum(good, bytes));
}

static const wf_test tests[] = {{"hostile indices are refused", hostile_indices_are_refused},
                                {"a good index is read", a_good_index_is_read},
                                {"states of shapes of their own", states_have_shapes},
                                {"every flipped bit is found", every_flipped_bit_is_found},
                                {"its checksum is of the whole", its_checksum_is_of_the_whole},
                                {"format 1 is read", format_1_is_read},
                                {"an index comes back", an_index_comes_back},
                                {"large indices are bounded", large_indices_are_bounded},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("index", tests);
}
