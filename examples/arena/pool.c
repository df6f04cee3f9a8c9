/* A pool serves objects that come and go one by one, in any order. */
#include <cairn/arena.h>
#include <stdio.h>

struct order {
    unsigned number;
    double price;
    struct order *next;
};

int main(void)
{
    struct cairn_pool *pool = cairn_pool_create(sizeof(struct order), _Alignof(struct order));
    struct order *open = NULL;
    for (unsigned number = 0; number < 100000; number++) {
        struct order *order = cairn_pool_alloc(pool);
        if (order == NULL)
            return 1;
        *order = (struct order){.number = number, .price = number / 8.0, .next = open};
        open = order;
        if (number % 3 != 0) { /* most orders are done at once */
            open = order->next;
            cairn_pool_free(pool, order);
        }
    }
    struct cairn_pool_stats stats = cairn_pool_statistics(pool);
    printf("%zu orders open, %zu bytes each\n", stats.used_count, stats.object_bytes);
    cairn_pool_destroy(pool);
}
