/* fuzz.h - a fuzz target reads its input as calls to a library, and compares the results with a
 * model.
 *
 * A target is one file with LLVMFuzzerTestOneInput(). Linked with clang's fuzzer it searches for
 * failing inputs. Linked with random.c it runs on random inputs from a seed that is printed. The
 * target reports a difference in one line and calls abort().
 */
#ifndef CAIRN_FUZZ_H
#define CAIRN_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *next;
    const uint8_t *end;
};

/* Returns the next byte of the input, or 0 behind its end. */
static inline unsigned input_byte(struct input *input)
{
    return input->next < input->end ? *input->next++ : 0;
}

/* Returns a size that is mostly small, and now and then large: the first byte chooses the number of
 * bits. */
static inline size_t input_size(struct input *input, unsigned most_bits)
{
    unsigned bits = input_byte(input) % (most_bits + 1);
    size_t value = input_byte(input) | input_byte(input) << 8 | (size_t)input_byte(input) << 16 |
                   (size_t)input_byte(input) << 24;
    return value & (((size_t)1 << bits) - 1);
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
