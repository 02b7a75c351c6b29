/* 3x3 convolutions and the gradients of their weights by Winograd's method.

   Tiles of 4x4 outputs see 6x6 inputs. As polynomials in two variables, taken at the places 0, 1, -1, 2, -2 and infinity of each, their
   144 products of numbers become 36:

       y = A' ((G w G') * (B' x B)) A        dw = G' (sum over tiles of (B' x B) * (A dy A')) G

   For each of the 36 places that is a product of matrices, tiles x inputs x outputs. Everything lies with channels last. A few tiles
   are transformed, multiplied and transformed back while they are in the cache. */

#ifndef LANES
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#endif

enum { TILE = 4, WINDOW = 6, PLACES = 36 };
enum { PANEL = 2 * LANES }; /* outputs whose sums are kept in registers together, */
enum { ROWS = 6 };          /* with so many tiles */
enum { COLUMNS = 4 };       /* or, for gradients, with so many inputs */
enum { TILES = 24 };        /* tiles in the cache together: a multiple of ROWS */
enum { SPAN = 16 * TILES }; /* tiles whose products are summed by themselves, so that a large batch keeps the digits of a small one */
enum { SPACING = 16 };      /* numbers between places, so that they do not compete for the same lines of the cache */

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef struct { int height, width, inputs, outputs; } shape;

#define INLINE static inline __attribute__((always_inline))

INLINE lanes load(const float *from) { return *(const lanes *)from; }
INLINE void store(float *to, lanes value) { *(lanes *)to = value; }

/* B': six inputs. */
INLINE void inputs_at_places(const lanes x[WINDOW], lanes *to, int step) {
    lanes even = x[4] - 4.0f * x[2], odd = x[3] - 4.0f * x[1];
    lanes even_2 = x[4] - x[2], odd_2 = 2.0f * (x[3] - x[1]);
    to[0] = 4.0f * x[0] - 5.0f * x[2] + x[4];
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = even_2 + odd_2;
    to[4 * step] = even_2 - odd_2;
    to[5 * step] = 4.0f * x[1] - 5.0f * x[3] + x[5];
}

/* G: three weights. */
INLINE void weights_at_places(const lanes w[3], lanes *to, int step) {
    lanes even = w[0] + w[2], even_2 = w[0] + 4.0f * w[2];
    to[0] = w[0] / 4.0f;
    to[step] = (even + w[1]) / -6.0f;
    to[2 * step] = (even - w[1]) / -6.0f;
    to[3 * step] = (even_2 + 2.0f * w[1]) / 24.0f;
    to[4 * step] = (even_2 - 2.0f * w[1]) / 24.0f;
    to[5 * step] = w[2];
}

/* G': gradients of three weights. */
INLINE void weights_from_places(const lanes m[WINDOW], lanes *to, int step) {
    lanes even = (m[1] + m[2]) / -6.0f, odd = (m[2] - m[1]) / 6.0f, even_2 = (m[3] + m[4]) / 24.0f, odd_2 = (m[3] - m[4]) / 12.0f;
    to[0] = m[0] / 4.0f + even + even_2;
    to[step] = odd + odd_2;
    to[2 * step] = even + 4.0f * even_2 + m[5];
}

/* A: gradients of four outputs. */
INLINE void gradients_at_places(const lanes y[TILE], lanes *to, int step) {
    lanes even = y[0] + y[2], odd = y[1] + y[3];
    lanes even_2 = y[0] + 4.0f * y[2], odd_2 = 2.0f * y[1] + 8.0f * y[3];
    to[0] = y[0];
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = even_2 + odd_2;
    to[4 * step] = even_2 - odd_2;
    to[5 * step] = y[3];
}

/* A': four outputs. */
INLINE void outputs(const lanes m[WINDOW], lanes *to, int step) {
    lanes even = m[1] + m[2], odd = m[1] - m[2], even_2 = m[3] + m[4], odd_2 = m[3] - m[4];
    to[0] = m[0] + even + even_2;
    to[step] = odd + 2.0f * odd_2;
    to[2 * step] = even + 4.0f * even_2;
    to[3 * step] = odd + 8.0f * odd_2 + m[5];
}

/* Where a tile's first pixel lies: image, row, column. */
typedef struct { long image; int row, column; } place;

INLINE place place_of(int tile, shape s) {
    int across = s.width / TILE, each = across * (s.height / TILE);
    return (place){tile / each, tile % each / across * TILE, tile % across * TILE};
}

/* B' x B of a tile into to[36][stride]; zeros around the picture. */
static void transform_inputs(const float *x, place at, shape s, float *to, long stride) {
    const float *image = x + at.image * s.height * s.width * s.inputs;
    for (int channel = 0; channel < s.inputs; channel += LANES) {
        lanes half[WINDOW][WINDOW];
        for (int column = 0; column < WINDOW; column++) {
            lanes pixels[WINDOW];
            int across = at.column + column - 1;
            for (int row = 0; row < WINDOW; row++) {
                int down = at.row + row - 1;
                int inside = down >= 0 && down < s.height && across >= 0 && across < s.width;
                pixels[row] = inside ? load(image + ((long)down * s.width + across) * s.inputs + channel) : (lanes){0};
            }
            inputs_at_places(pixels, &half[0][column], WINDOW);
        }
        for (int row = 0; row < WINDOW; row++) {
            lanes whole[WINDOW];
            inputs_at_places(half[row], whole, 1);
            for (int column = 0; column < WINDOW; column++) store(to + (row * WINDOW + column) * stride + channel, whole[column]);
        }
    }
}

/* A dy A' of a tile into to[36][stride]. */
static void transform_gradients(const float *dy, place at, shape s, float *to, long stride) {
    const float *corner = dy + ((at.image * s.height + at.row) * s.width + at.column) * s.outputs;
    for (int channel = 0; channel < s.outputs; channel += LANES) {
        lanes half[WINDOW][TILE];
        for (int column = 0; column < TILE; column++) {
            lanes pixels[TILE];
            for (int row = 0; row < TILE; row++) pixels[row] = load(corner + ((long)row * s.width + column) * s.outputs + channel);
            gradients_at_places(pixels, &half[0][column], TILE);
        }
        for (int row = 0; row < WINDOW; row++) {
            lanes whole[WINDOW];
            gradients_at_places(half[row], whole, 1);
            for (int column = 0; column < WINDOW; column++) store(to + (row * WINDOW + column) * stride + channel, whole[column]);
        }
    }
}

/* A' m A of a tile's PANEL outputs, and the bias, into the picture. */
static void transform_outputs(const float *m, long stride, const float *bias, place at, shape s, float *y) {
    float *corner = y + ((at.image * s.height + at.row) * s.width + at.column) * s.outputs;
    for (int channel = 0; channel < PANEL; channel += LANES) {
        lanes half[TILE][WINDOW], from = bias ? load(bias + channel) : (lanes){0};
        for (int column = 0; column < WINDOW; column++) {
            lanes sums[WINDOW];
            for (int row = 0; row < WINDOW; row++) sums[row] = load(m + (row * WINDOW + column) * stride + channel);
            outputs(sums, &half[0][column], WINDOW);
        }
        for (int row = 0; row < TILE; row++) {
            lanes whole[TILE];
            outputs(half[row], whole, 1);
            for (int column = 0; column < TILE; column++)
                store(corner + ((long)row * s.width + column) * s.outputs + channel, whole[column] + from);
        }
    }
}

/* [ROWS][inputs] times [inputs][PANEL]. */
static void multiply(const float *x, const float *w, int inputs, float *m) {
    lanes sums[ROWS][2];
    for (int row = 0; row < ROWS; row++) sums[row][0] = sums[row][1] = (lanes){0};
    for (int input = 0; input < inputs; input++) {
        lanes left = load(w + input * PANEL), right = load(w + input * PANEL + LANES);
        for (int row = 0; row < ROWS; row++) {
            float number = x[row * inputs + input];
            sums[row][0] += number * left;
            sums[row][1] += number * right;
        }
    }
    for (int row = 0; row < ROWS; row++) {
        store(m + row * PANEL, sums[row][0]);
        store(m + row * PANEL + LANES, sums[row][1]);
    }
}

/* Add [tiles][COLUMNS] turned, times [tiles][PANEL]; these few are summed by themselves first, which keeps more digits. */
static void multiply_turned(const float *x, const float *y, int tiles, int inputs, int outputs, float *to) {
    lanes sums[COLUMNS][2];
    for (int row = 0; row < COLUMNS; row++) sums[row][0] = sums[row][1] = (lanes){0};
    for (int tile = 0; tile < tiles; tile++) {
        lanes left = load(y + tile * outputs), right = load(y + tile * outputs + LANES);
        for (int row = 0; row < COLUMNS; row++) {
            float number = x[tile * inputs + row];
            sums[row][0] += number * left;
            sums[row][1] += number * right;
        }
    }
    for (int row = 0; row < COLUMNS; row++) {
        float *at = to + row * outputs;
        store(at, load(at) + sums[row][0]);
        store(at + LANES, load(at + LANES) + sums[row][1]);
    }
}

/* Weights [3][3][inputs][outputs] -> [outputs / PANEL][36][inputs][PANEL]. */
void transform_weights(const float *w, int inputs, int outputs, float *to) {
    for (int output = 0; output < outputs; output += LANES)
        for (int input = 0; input < inputs; input++) {
            lanes half[WINDOW][3];
            const float *from = w + (long)input * outputs + output;
            for (int column = 0; column < 3; column++) {
                lanes of_column[3];
                for (int row = 0; row < 3; row++) of_column[row] = load(from + (long)(row * 3 + column) * inputs * outputs);
                weights_at_places(of_column, &half[0][column], 3);
            }
            float *first = to + ((long)(output / PANEL) * PLACES * inputs + input) * PANEL + output % PANEL;
            for (int row = 0; row < WINDOW; row++) {
                lanes whole[WINDOW];
                weights_at_places(half[row], whole, 1);
                for (int column = 0; column < WINDOW; column++) store(first + (long)(row * WINDOW + column) * inputs * PANEL, whole[column]);
            }
        }
}

/* G' sums G: [36][inputs][outputs] -> [3][3][inputs][outputs]. */
void transform_sums(const float *sums, int inputs, int outputs, float *to) {
    long each = (long)inputs * outputs;
    for (long pair = 0; pair < each; pair += LANES) {
        lanes half[3][WINDOW];
        for (int column = 0; column < WINDOW; column++) {
            lanes of_column[WINDOW];
            for (int row = 0; row < WINDOW; row++) of_column[row] = load(sums + (row * WINDOW + column) * each + pair);
            weights_from_places(of_column, &half[0][column], WINDOW);
        }
        for (int row = 0; row < 3; row++) {
            lanes whole[3];
            weights_from_places(half[row], whole, 1);
            for (int column = 0; column < 3; column++) store(to + (row * 3 + column) * each + pair, whole[column]);
        }
    }
}

/* Channels, in and out, are multiples of this. */
int channels(void) { return PANEL; }

/* Numbers that a thread needs room for in the two functions below. */
long room(shape s) {
    int products = s.outputs > PANEL ? s.outputs : PANEL;
    return PLACES * ((long)TILES * (s.inputs + products) + 2 * SPACING + (long)s.inputs * s.outputs);
}

/* y of the tiles from first to last, by weights as above. */
void convolve(const float *x, const float *w, const float *bias, float *y, float *v, int first, int last, shape s) {
    long stride = TILES * s.inputs + SPACING, sums = TILES * PANEL + SPACING;
    float *m = v + PLACES * stride;
    for (int start = first; start < last; start += TILES) {
        int count = last - start < TILES ? last - start : TILES;
        for (int tile = 0; tile < count; tile++) transform_inputs(x, place_of(start + tile, s), s, v + tile * s.inputs, stride);
        for (int output = 0; output < s.outputs; output += PANEL) {
            const float *panel = w + (long)output * PLACES * s.inputs;
            for (int at = 0; at < PLACES; at++)
                for (int tile = 0; tile < count; tile += ROWS)
                    multiply(v + at * stride + tile * s.inputs, panel + (long)at * s.inputs * PANEL, s.inputs, m + at * sums + tile * PANEL);
            for (int tile = 0; tile < count; tile++)
                transform_outputs(m + tile * PANEL, sums, bias ? bias + output : 0, place_of(start + tile, s), s, y + output);
        }
    }
}

/* Add (B' x B) * (A dy A') of the tiles from first to last to sums [36][inputs][outputs]. */
void add_products(const float *x, const float *dy, float *sums, float *v, int first, int last, shape s) {
    long of_x = TILES * s.inputs + SPACING, of_y = TILES * s.outputs + SPACING, numbers = (long)PLACES * s.inputs * s.outputs;
    int several = last - first > SPAN;
    float *z = v + PLACES * of_x, *span = several ? z + PLACES * of_y : sums;
    for (int start = first; start < last; start += TILES) {
        int count = last - start < TILES ? last - start : TILES;
        if (several && (start - first) % SPAN == 0)
            for (long i = 0; i < numbers; i++) span[i] = 0;
        for (int tile = 0; tile < count; tile++) {
            place at = place_of(start + tile, s);
            transform_inputs(x, at, s, v + tile * s.inputs, of_x);
            transform_gradients(dy, at, s, z + tile * s.outputs, of_y);
        }
        for (int at = 0; at < PLACES; at++)
            for (int output = 0; output < s.outputs; output += PANEL)
                for (int input = 0; input < s.inputs; input += COLUMNS)
                    multiply_turned(v + at * of_x + input, z + at * of_y + output, count, s.inputs, s.outputs,
                                    span + ((long)at * s.inputs + input) * s.outputs + output);
        if (several && ((start + TILES - first) % SPAN == 0 || start + TILES >= last))
            for (long i = 0; i < numbers; i++) sums[i] += span[i];
    }
}
