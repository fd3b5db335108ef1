/* parallel/report/svg.c - see the header. */
#include "parallel/report/svg.h"
#include "core/files/output.h"

void wf_svg_begin(FILE *out, double width, double height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n<style>text { font-family: sans-serif; fill: #222 } "
            ".head { font-size: 14px; font-weight: bold } .rank { font-size: 13px; "
            "font-weight: bold } .line { font-size: 13px } .small { font-size: 10px }"
            "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
}

void wf_svg_text(FILE *out, double x, double y, const char *style, const char *more,
                 const char *words)
{
    fprintf(out, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\"%s%s>", x, y, style, more ? " " : "",
            more ? more : "");
    for (; *words; words++)
        switch (*words) {
        case '<':
            fprintf(out, "&lt;");
            break;
        case '&':
            fprintf(out, "&amp;");
            break;
        default:
            fputc(*words, out);
        }
    fprintf(out, "</text>\n");
}

wf_status wf_svg_write(const char *path, wf_svg_draw *draw, const void *arg, wf_error *error)
{
    wf_output *output = wf_output_open(path, error);

    if (!output)
        return error->code;
    draw(wf_output_stream(output), arg);
    return wf_output_publish(output, error);
}
