#include "alloc/size_class.h"

/* EIGHT and FOUR list the sizes of eight or four classes above `from` bytes and up to twice `from`
 * bytes, in units of 16 bytes. */
#define EIGHT(from)                                                                                \
    (from) * 9 / 128, (from) * 10 / 128, (from) * 11 / 128, (from) * 12 / 128, (from) * 13 / 128,  \
        (from) * 14 / 128, (from) * 15 / 128, (from) / 8
#define FOUR(from) (from) * 5 / 64, (from) * 6 / 64, (from) * 7 / 64, (from) / 8

const uint16_t size_class_units[SIZE_CLASS_COUNT] = {
    1,          2,          3,           4,           5,           6,          7,           8,
    9,          10,         11,          12,          13,          14,         15,          16,
    EIGHT(256), EIGHT(512), EIGHT(1024), EIGHT(2048), EIGHT(4096), FOUR(8192), FOUR(16384),
};

/* Element i is the class of the sizes 16 i - 15 to 16 i. Element 0 is the class of size 0, which
 * counts as size 1. */
#define TWICE(class)  (class), (class)
#define FOURTH(class) (class), (class), (class), (class)

const uint8_t size_class_table[SIZE_CLASS_TABLE_MAX / 16 + 1] = {
    0,          0,          1,          2,          3,          4,          5,
    6,          7,          8,          9,          10,         11,         12,
    13,         14,         15,         TWICE(16),  TWICE(17),  TWICE(18),  TWICE(19),
    TWICE(20),  TWICE(21),  TWICE(22),  TWICE(23),  FOURTH(24), FOURTH(25), FOURTH(26),
    FOURTH(27), FOURTH(28), FOURTH(29), FOURTH(30), FOURTH(31),
};

/* Element i is the class of the sizes 128 i + 1 to 128 i + 128, if they are above
 * SIZE_CLASS_TABLE_MAX. The sizes of all classes above that are multiples of 128. */
#define EIGHTH(class)     FOURTH(class), FOURTH(class)
#define SIXTEENTH(class)  EIGHTH(class), EIGHTH(class)
#define THIRTY_2ND(class) SIXTEENTH(class), SIXTEENTH(class)

const uint8_t size_class_coarse_table[SIZE_CLASS_BYTES_MAX / 128] = {
    EIGHTH(31),
    32,
    33,
    34,
    35,
    36,
    37,
    38,
    39,
    TWICE(40),
    TWICE(41),
    TWICE(42),
    TWICE(43),
    TWICE(44),
    TWICE(45),
    TWICE(46),
    TWICE(47),
    FOURTH(48),
    FOURTH(49),
    FOURTH(50),
    FOURTH(51),
    FOURTH(52),
    FOURTH(53),
    FOURTH(54),
    FOURTH(55),
    SIXTEENTH(56),
    SIXTEENTH(57),
    SIXTEENTH(58),
    SIXTEENTH(59),
    THIRTY_2ND(60),
    THIRTY_2ND(61),
    THIRTY_2ND(62),
    THIRTY_2ND(63),
};
