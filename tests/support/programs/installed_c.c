/* installed_c.c - exits with 0 if the statistics of libcairn count a block of malloc(). */
#include <cairn/cairn.h>
#include <stdlib.h>

int main(void)
{
    struct cairn_stats before, after;
    cairn_statistics(&before);
    void *volatile block = malloc(100000);
    cairn_statistics(&after);
    free(block);
    return after.live_count == before.live_count + 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
