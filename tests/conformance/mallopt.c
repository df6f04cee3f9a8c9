/* mallopt.c - prints what mallopt() returns for every parameter with many values. The library that
 * is preloaded or linked provides mallopt(). */
#include <limits.h>
#include <malloc.h>
#include <stdio.h>

int main(void)
{
    static const int values[] = {INT_MIN, -1,      0,       1,       80,     160,
                                 161,     1 << 20, 1 << 25, 1 << 30, INT_MAX};
    for (int parameter = -9; parameter < 10; parameter++)
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            printf("%d %d: %d\n", parameter, values[i], mallopt(parameter, values[i]));
    return 0;
}
