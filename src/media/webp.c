/* WebP by libwebp: lossy, lossless, with alpha (dropped), or the first frame of an animation on its black canvas. */
#include "media/decoders.h"
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static const char *webp_status_text(VP8StatusCode s) {
    switch (s) {
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it is truncated: its bytes end before the picture does";
    case VP8_STATUS_BITSTREAM_ERROR: return "its data is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses a feature that is not supported";
    default: return "it cannot be decoded";
    }
}

/* One frame into its place on the canvas. */
static status webp_decode_frame(const picture_file *f, const WebPIterator *frame, picture *out) {
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c))
        return decoder_error(f, "libwebp is not the version that this program was built for");
    VP8StatusCode s = WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &c.input);
    if (s != VP8_STATUS_OK) return decoder_error(f, "%s", webp_status_text(s));
    u64 x = (u64)frame->x_offset, y = (u64)frame->y_offset, w = (u64)c.input.width, h = (u64)c.input.height;
    if ((int)w != frame->width || (int)h != frame->height || x + w > out->width || y + h > out->height)
        return decoder_error(f, "its frame is not of the size that its header says");
    u64 stride = 3ull * out->width;
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = out->rgb + y * stride + 3 * x;
    c.output.u.RGBA.stride = (int)stride; /* sides have at most 2^24 pixels here */
    c.output.u.RGBA.size = (h - 1) * stride + 3 * w;
    s = WebPDecode(frame->fragment.bytes, frame->fragment.size, &c);
    WebPFreeDecBuffer(&c.output);
    if (s == VP8_STATUS_OUT_OF_MEMORY) return decoder_nomem(f);
    return s == VP8_STATUS_OK ? ST_OK : decoder_error(f, "%s", webp_status_text(s));
}

static status webp_decode_first(const picture_file *f, WebPDemuxer *demux, picture *out) {
    status s =
        decoder_begin(f, WebPDemuxGetI(demux, WEBP_FF_CANVAS_WIDTH), WebPDemuxGetI(demux, WEBP_FF_CANVAS_HEIGHT), out);
    if (s != ST_OK) return s;
    WebPIterator frame;
    if (!WebPDemuxGetFrame(demux, 1, &frame)) return decoder_error(f, "it holds no frame");
    if ((u32)frame.width != out->width || (u32)frame.height != out->height)
        memset(out->rgb, 0, 3ull * out->width * out->height);
    s = webp_decode_frame(f, &frame, out);
    WebPDemuxReleaseIterator(&frame);
    return s;
}

status webp_decode(const picture_file *f, picture *out) {
    WebPData data = {.bytes = f->data, .size = f->n};
    WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
    WebPDemuxer *demux = WebPDemuxPartial(&data, &state);
    status s;
    if (demux && state == WEBP_DEMUX_DONE)
        s = webp_decode_first(f, demux, out);
    else if (state == WEBP_DEMUX_PARSE_ERROR) /* or no memory for its lists: the library does not tell */
        s = decoder_error(f, "its structure is damaged");
    else
        s = decoder_error(f, "%s", webp_status_text(VP8_STATUS_NOT_ENOUGH_DATA));
    WebPDemuxDelete(demux);
    return s;
}
