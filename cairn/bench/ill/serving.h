/* serving.h - lets an illness serve all blocks itself.
 *
 * The file that includes it must have defined serve(), room_of() and take(); ill.h describes them
 * (struct ill_own). Nothing else happens at a malloc or a free.
 */
#ifndef SERVING_H
#define SERVING_H

__attribute__((constructor)) static void begin_serving(void)
{
    static const struct ill_own own = {serve, room_of, take};
    ill_own = &own;
}

static void ill_allocates(size_t *bytes)
{
    (void)bytes;
}

static int ill_frees(void *block)
{
    (void)block;
    return 1;
}

#endif
