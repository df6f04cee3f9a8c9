/* probe_calloc: allocates 1,000 blocks by calloc, frees them, and allocates as many again. */
#include <stdlib.h>

enum { COUNT = 1000, BYTES = 48 };

int main(void)
{
    static void *blocks[COUNT];
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < COUNT; i++)
            blocks[i] = calloc(1, BYTES);
        for (int i = COUNT - 1; i >= 0; i--)
            free(blocks[i]);
    }
    return 0;
}
