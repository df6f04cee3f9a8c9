/* walked_columns.c - sums up the columns of a table: walked_columns ROWS BYTES WALKS.
 *
 * Each row is a block of BYTES bytes. The program reads one word of each row after the other, and
 * then the next word of each row: eight columns, which are all on the first cache line of the rows.
 * It does this WALKS times.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    enum { COLUMNS = 8 };
    if (count != 4)
        return 2;
    size_t rows = strtoul(arguments[1], NULL, 10), bytes = strtoul(arguments[2], NULL, 10);
    size_t walks = strtoul(arguments[3], NULL, 10);
    volatile uint64_t **table = malloc(rows * sizeof *table);
    for (size_t row = 0; row < rows; row++)
        table[row] = memset(malloc(bytes), 1, bytes);
    uint64_t sum = 0;
    for (size_t walk = 0; walk < walks; walk++)
        for (size_t column = 0; column < COLUMNS; column++)
            for (size_t row = 0; row < rows; row++)
                sum += table[row][column];
    return sum == 42;
}
