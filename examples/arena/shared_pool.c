/* A shared pool: one thread makes messages, and another takes and frees them. */
#include <cairn/arena.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { MESSAGES = 10000 };

struct message {
    unsigned number;
};

static struct cairn_pool *pool;
static _Atomic(struct message *) slot;

static void *consume(void *sum)
{
    for (unsigned seen = 0; seen < MESSAGES;) {
        struct message *message = atomic_exchange(&slot, NULL);
        if (message == NULL)
            continue;
        *(unsigned long *)sum += message->number;
        cairn_pool_free(pool, message);
        seen++;
    }
    return NULL;
}

int main(void)
{
    pool = cairn_pool_create_with(
        &(struct cairn_pool_options){.object_bytes = sizeof(struct message), .shared = true});
    unsigned long sum = 0;
    pthread_t consumer;
    if (pool == NULL || pthread_create(&consumer, NULL, consume, &sum) != 0)
        return 1;
    for (unsigned number = 0; number < MESSAGES; number++) {
        struct message *message = cairn_pool_alloc(pool);
        if (message == NULL)
            return 1;
        message->number = number;
        for (struct message *none = NULL; !atomic_compare_exchange_weak(&slot, &none, message);)
            none = NULL;
    }
    pthread_join(consumer, NULL);
    printf("sum %lu\n", sum);
    cairn_pool_destroy(pool);
}
