/* Fragmentation: if a program allocates and frees in an unlucky order, more memory is resident than
 * the program holds. The workload measures the difference. It has two kinds.
 *
 * --kind robson is an adversary after J. M. Robson, "An estimate of the store size necessary for
 * dynamic storage allocation" (JACM 1971). It fills memory with the smallest blocks. Then it
 * doubles the size in each phase. A phase first frees all blocks except one in each region of the
 * new size, so that no hole in a region has room for a block of the new size. Then it allocates as
 * many blocks of the new size as the limit on live bytes allows. The regions are those of an
 * imaginary memory that is never reused. The place of a block in this memory is the sum of all
 * bytes that were allocated before it. So the addresses that the allocator chooses do not influence
 * the order of calls.
 *
 * --kind server is a realistic program. Requests allocate and free in quick succession. Between
 * their blocks lie blocks of sessions, which live a thousand times as long. Sizes drift, and the
 * load rises and falls from one phase to the next.
 *
 * Each kind measures the loss of its own pattern, not that of other programs. The first 16 bytes of
 * a block link it to the next one and are always written. --touch affects the rest.
 */
#include "common/peak.h"
#include "common/workload.h"

enum kind { ROBSON, SERVER };

static struct parameter own[] = {
    {.name = "kind", .help = "kind of program", .choices = "robson|server"},
    {.name = "bytes",
     .help = "limit on live bytes of kind robson, over all threads",
     .value = 32 * MIB,
     .least = 1,
     .most = GIB << 10},
    /* A block of kind robson is 8 bytes smaller than a power of 2: see struct robson. `least` and
     * `most` are the powers for the smallest and the largest blocks, in bytes. */
    {.name = "least",
     .help = "bytes of robson's smallest blocks plus 8, a power of 2",
     .value = 32,
     .least = 32,
     .most = MIB},
    {.name = "most",
     .help = "bytes of robson's largest blocks plus 8, a power of 2",
     .value = 16 * KIB,
     .least = 32,
     .most = MIB},
    {.name = "sessions",
     .help = "sessions of the server when it is busiest, over all threads",
     .value = 2000,
     .least = 1,
     .most = 1 << 24},
    {0},
};

enum {
    HEADER = 8,
    ROUNDS = 8,
    PHASES = 8,
    REQUESTS = 1000000,
    REQUESTS_OF_SESSION = 32,
    LENGTHS = 1024,
    DRIFT = 512
};

/* The beginning of every block. The other contents follow from the serial number. */
struct link {
    struct link *next;
    uint32_t size;
    uint32_t serial;
};

static enum kind kind;

/* Blocks. */

/* Returns the key of the contents, which differ between workers for the same serial number. */
static uint64_t key_of(const struct worker *worker, uint32_t serial)
{
    return random_mix((settings.seed + worker->index) << 32 ^ serial);
}

static struct link *link_new(struct worker *worker, size_t size, uint32_t serial, struct link *next)
{
    struct link *link = worker_malloc(worker, size);
    *link = (struct link){next, (uint32_t)size, serial};
    contents_write(link + 1, 0, touch_bytes(settings.touch, size - sizeof *link),
                   key_of(worker, serial));
    return link;
}

static void link_drop(struct worker *worker, struct link *link)
{
    size_t touched = touch_bytes(settings.touch, link->size - sizeof *link);
    uint64_t key = key_of(worker, link->serial);
    if (contents_sum(link + 1, touched) != contents_expected(touched, key))
        worker->damaged++;
    worker_sum(worker, key ^ link->size);
    worker_free(worker, link, link->size);
}

/* Kind robson. */

/* The blocks of one worker in the order of birth. Their sizes are powers of 2 minus 8 bytes,
 * because many allocators add a header of 8 bytes. So the blocks fill the holes exactly, both under
 * these allocators and under those with size classes. A unit is the size of the smallest block. The
 * serial number of a block is the number of units that were allocated before it in the round.
 * Dividing the serial number by the size of a region gives the region. */
struct robson {
    struct worker *worker;
    struct link *oldest;
    struct link **end;
    uint64_t live;       /* bytes, HEADER included for each block */
    uint64_t live_count; /* number of blocks */
    uint64_t born;       /* units allocated in this round */
};

static uint64_t bound; /* limit on live bytes of each worker */
static uint64_t unit;
static unsigned doublings;
static atomic_uint_fast64_t robson_live_most; /* sum of the workers' highest live bytes */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Allocates blocks of `bytes`, HEADER included, up to the limit. */
static void fill(struct robson *robson, uint64_t bytes)
{
    struct worker *worker = robson->worker;
    while (bound - robson->live >= bytes && worker_goes_on(worker)) {
        uint64_t room = smaller((bound - robson->live) / bytes, worker->share - worker->done);
        uint64_t count = smaller(room, workload.batch);
        worker_begin(worker);
        for (uint64_t i = 0; i < count; i++) {
            *robson->end = link_new(worker, bytes - HEADER, (uint32_t)robson->born, NULL);
            robson->end = &(*robson->end)->next;
            robson->born += bytes / unit;
        }
        worker_end(worker, count);
        robson->live += count * bytes;
        robson->live_count += count;
    }
}

/* Frees all blocks except the oldest block of each region of 2^`shift` units. If `keeps` is false,
 * frees the oldest blocks, too. */
static void thin(struct robson *robson, unsigned shift, bool keeps)
{
    struct worker *worker = robson->worker;
    struct link **place = &robson->oldest;
    uint64_t next_region = 0;
    uint64_t next_serial = 0;
    while (*place != NULL && worker_goes_on(worker)) {
        uint64_t count = smaller(worker->share - worker->done, workload.batch);
        uint64_t freed = 0;
        worker_begin(worker);
        while (*place != NULL && freed < count) {
            struct link *link = *place;
            uint64_t region = (uint64_t)link->serial >> shift;
            if (link->serial < next_serial)
                workload_fail("a block is linked to one that is older than itself");
            next_serial = (uint64_t)link->serial + 1;
            if (keeps && region >= next_region) {
                next_region = region + 1;
                place = &link->next;
                continue;
            }
            *place = link->next;
            robson->live -= link->size + HEADER;
            robson->live_count--;
            link_drop(worker, link);
            freed++;
        }
        worker_end(worker, freed);
    }
    robson->end = place;
}

static void work_as_robson(struct worker *worker)
{
    uint64_t live_most = 0;
    while (worker_goes_on(worker)) {
        struct robson robson = {.worker = worker, .end = &robson.oldest};
        for (unsigned i = 0; i <= doublings; i++) {
            if (i > 0)
                thin(&robson, i, true);
            fill(&robson, unit << i);
            uint64_t live = robson.live - HEADER * robson.live_count;
            live_most = live > live_most ? live : live_most;
        }
        thin(&robson, 0, false);
        while (robson.oldest != NULL) {
            /* Frees the blocks that are left because the operations or the time ran out. */
            struct link *link = robson.oldest;
            robson.oldest = link->next;
            robson.live_count--;
            link_drop(worker, link);
        }
        /* The count is wrong if the allocator gave two blocks the same memory: the list then
         * skipped the blocks between them. */
        if (robson.live_count != 0)
            worker->damaged++;
    }
    atomic_fetch_add(&robson_live_most, live_most);
}

/* Returns the number of blocks that a round allocates. The first phase allocates bound / unit
 * blocks. Phase i allocates blocks of 2^i units, which have bound / 2 bytes in total, because the
 * survivors of the earlier phases have the other half. */
static uint64_t blocks_of_a_round(void)
{
    uint64_t blocks = bound / unit;
    for (unsigned i = 1; i <= doublings; i++)
        blocks += bound / 2 / (unit << i);
    return blocks;
}

static void prepare_robson(void)
{
    uint64_t most = parameter("most");
    unit = parameter("least");
    if ((unit & (unit - 1)) != 0 || (most & (most - 1)) != 0 || most < unit)
        workload_refuse(
            "--least %zu and --most %zu must be powers of 2, and --most not less than --least",
            (size_t)unit, (size_t)most);
    while (unit << doublings < most)
        doublings++;
    bound = parameter("bytes") / settings.threads / (2 * most) * (2 * most);
    if (bound == 0)
        workload_refuse("--bytes %zu is too little for two blocks of --most %zu in each thread",
                        (size_t)parameter("bytes"), (size_t)most);
    if (bound / unit > UINT32_MAX / (2 + doublings / 2))
        workload_refuse("--bytes %zu is too much for --least %zu", (size_t)parameter("bytes"),
                        (size_t)unit);
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = ROUNDS * settings.threads * 2 * blocks_of_a_round();
}

/* Kind server. */

/* The blocks of a session, the youngest first. */
struct session {
    struct link *blocks;
    uint64_t count;
};

struct server {
    struct worker *worker;
    struct session *sessions;
    uint64_t sessions_count;
    /* The number of sessions that get requests. All other sessions time out. */
    uint64_t busy;
    uint64_t sweep; /* the next session to check for a timeout */
    /* The present factor of all sizes, in units of 1/256. It rises from 256 to 256 + DRIFT in the
     * course of a run. */
    uint64_t scale;
    int64_t held; /* bytes of all sessions */
};

static const unsigned char busy_percent[PHASES] = {60, 100, 50, 90, 25, 80, 100, 30};

/* Random lengths of blocks. They are drawn once, because a logarithm costs more than malloc. */
static uint16_t lengths[LENGTHS];
static atomic_int_fast64_t held; /* bytes held by all servers */
static double resident_per_held[PHASES];

static size_t size_now(const struct server *server)
{
    size_t length = lengths[random_below(&server->worker->random, LENGTHS)];
    return sizeof(struct link) + length * server->scale / 256;
}

static void session_add(struct server *server, struct session *session)
{
    size_t size = size_now(server);
    session->blocks = link_new(server->worker, size, server->worker->serial++, session->blocks);
    session->count++;
    server->held += (int64_t)size;
}

static void session_end(struct server *server, struct session *session)
{
    for (; session->blocks != NULL; session->count--) {
        struct link *link = session->blocks;
        if (session->count == 0)
            workload_fail("a session has more blocks than it got");
        session->blocks = link->next;
        server->held -= (int64_t)link->size;
        link_drop(server->worker, link);
    }
    if (session->count != 0)
        server->worker->damaged++;
    session->count = 0;
}

/* Serves one request. Allocates some blocks for the request, one or two blocks for the session, and
 * some more for the request. Then frees the blocks of the request. Sometimes the session ends. */
static void request(struct server *server)
{
    struct random *random = &server->worker->random;
    struct session *session = &server->sessions[random_below(random, server->busy)];
    struct link *own_blocks = NULL;
    uint64_t bits = random_next(random);
    unsigned before = 2 + bits % 8;
    unsigned after = 2 + (bits >> 8) % 8;
    for (unsigned i = 0; i < before; i++)
        own_blocks =
            link_new(server->worker, size_now(server), server->worker->serial++, own_blocks);
    for (unsigned i = 0; i < 1 + (bits >> 16) % 2; i++)
        session_add(server, session);
    for (unsigned i = 0; i < after; i++)
        own_blocks =
            link_new(server->worker, size_now(server), server->worker->serial++, own_blocks);
    for (unsigned i = 0; i < before + after; i++) {
        struct link *link = own_blocks;
        own_blocks = link->next;
        link_drop(server->worker, link);
    }
    if (own_blocks != NULL)
        workload_fail("a request has more blocks than it got");
    if ((bits >> 24) % REQUESTS_OF_SESSION == 0)
        session_end(server, session);
    if (server->sweep >= server->busy)
        session_end(server, &server->sessions[server->sweep]);
    server->sweep = server->sweep + 1 < server->sessions_count ? server->sweep + 1 : 0;
}

static void sample(unsigned phase)
{
    uint64_t lazy;
    int64_t now = atomic_load(&held);
    if (now > 0)
        resident_per_held[phase] = (double)resident_bytes(&lazy) / (double)now;
}

static void work_as_server(struct worker *worker)
{
    uint64_t count = parameter("sessions") / settings.threads + 1;
    uint64_t phase_requests =
        (settings.seconds_ns > 0 ? REQUESTS : settings.operations) / settings.threads / PHASES + 1;
    struct server server = {.worker = worker, .sessions_count = count};
    server.sessions = table_new(count * sizeof *server.sessions);
    for (uint64_t done = 0; worker_goes_on(worker);) {
        unsigned phase = (unsigned)(done / phase_requests % PHASES);
        uint64_t left =
            smaller(phase_requests - done % phase_requests, worker->share - worker->done);
        uint64_t requests = smaller(left, workload.batch);
        int64_t before = server.held;
        server.busy = 1 + (count - 1) * busy_percent[phase] / 100;
        server.scale = 256 + DRIFT * (done % (PHASES * phase_requests)) / (PHASES * phase_requests);
        worker_begin(worker);
        for (uint64_t i = 0; i < requests; i++)
            request(&server);
        worker_end(worker, requests);
        done += requests;
        atomic_fetch_add_explicit(&held, server.held - before, memory_order_relaxed);
        if (requests == left && worker->index == 0)
            sample(phase);
    }
    for (uint64_t i = 0; i < count; i++)
        session_end(&server, &server.sessions[i]);
    table_free(server.sessions, count * sizeof *server.sessions);
}

static void prepare_server(void)
{
    struct random random = random_of(settings.seed, UINT64_MAX / 2);
    for (unsigned i = 0; i < LENGTHS; i++)
        lengths[i] =
            (uint16_t)size_log_uniform(&random, 8, random_below(&random, 64) == 0 ? 16 * KIB : KIB);
    if (settings.operations == 0 && settings.seconds_ns == 0)
        settings.operations = REQUESTS;
}

/* Both kinds. */

static void prepare(void)
{
    kind = (enum kind)parameter("kind");
    if (kind == ROBSON)
        prepare_robson();
    else
        prepare_server();
}

static void work(struct worker *worker)
{
    if (kind == ROBSON)
        work_as_robson(worker);
    else
        work_as_server(worker);
}

static void conclude(void)
{
    static const char *const names[PHASES] = {
        "resident_per_live_1", "resident_per_live_2", "resident_per_live_3", "resident_per_live_4",
        "resident_per_live_5", "resident_per_live_6", "resident_per_live_7", "resident_per_live_8",
    };
    uint64_t lazy;
    uint64_t peak = peak_resident_bytes();
    if (peak > 0)
        workload_figure("resident_peak_bytes", (double)peak);
    if (peak > 0 && kind == ROBSON)
        workload_figure("resident_peak_per_live_peak",
                        (double)peak / (double)atomic_load(&robson_live_most));
    for (unsigned i = 0; i < PHASES; i++)
        if (resident_per_held[i] > 0)
            workload_figure(names[i], resident_per_held[i]);
    workload_figure("resident_after_all_is_freed_bytes", (double)resident_bytes(&lazy));
}

const struct workload workload = {
    .name = "fragmentation",
    .title = "an adversary after Robson, or a server whose sessions grow among short-lived blocks",
    .operation = "robson: one block allocated or freed; server: one request of about 13 blocks",
    .own = own,
    .batch = 1000,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
    .conclude = conclude,
};
