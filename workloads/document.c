/* Documents as a JSON library holds them, with one block per node. A document is built as a parser
 * builds it, walked once, and kept together with some dozens of others. When a new document takes
 * the place of an old one, the old document is freed node by node. Objects and arrays grow by
 * realloc as members are added. Strings and member names are blocks of their own length.
 *
 * The workload tests very small blocks in large numbers, arrays that outgrow their place, and
 * whether blocks that were allocated together are close together. It says nothing about parsing,
 * nor about libraries that use an arena per document. Nodes and arrays are always written in full,
 * because walking the document reads them; --touch affects strings and names.
 */
#include "common/workload.h"

static struct parameter own[] = {
    {.name = "documents",
     .help = "documents that each thread keeps",
     .value = 64,
     .least = 1,
     .most = 1 << 20},
    {.name = "least",
     .help = "nodes of the smallest document",
     .value = 20,
     .least = 1,
     .most = 1 << 28},
    {.name = "most",
     .help = "nodes of the largest document",
     .value = 20000,
     .least = 1,
     .most = 1 << 28},
    {.name = "depth",
     .help = "largest depth of a node below the root",
     .value = 7,
     .least = 1,
     .most = 1000},
    {0},
};

enum { MEMBERS_MOST = 16, LENGTHS = 1024, PLACES_AT_FIRST = 4 };

enum kind { NUMBER, STRING, ARRAY, OBJECT };

struct member {
    struct block name;
    struct node *value;
};

struct node {
    enum kind kind;
    uint32_t count; /* number of items (array) or members (object) */
    union {
        uint64_t number;
        struct block text;
        struct {
            void *places; /* array: struct node *; object: struct member */
            uint64_t capacity;
        };
    };
};

/* A document with the values that identify it. This struct lies in the workload's own memory, not
 * in malloc's. */
struct document {
    struct node *root;
    uint64_t nodes;
    uint64_t sum; /* sum of all numbers and counts */
};

struct builder {
    struct worker *worker;
    uint64_t left; /* nodes that the document may still get */
    uint64_t sum;
};

/* Lengths of strings. They are drawn once, because a logarithm costs more than malloc. */
static uint16_t lengths[LENGTHS];
static unsigned depth_most;

static void prepare(void)
{
    depth_most = (unsigned)parameter("depth");
    if (parameter("most") < parameter("least"))
        workload_refuse("--most %zu is less than --least %zu", (size_t)parameter("most"),
                        (size_t)parameter("least"));
    struct random random = random_of(settings.seed, UINT64_MAX / 2);
    for (unsigned i = 0; i < LENGTHS; i++)
        lengths[i] =
            (uint16_t)size_log_uniform(&random, 2, random_below(&random, 32) == 0 ? 4096 : 80);
}

static size_t place_bytes(const struct node *node)
{
    return node->kind == OBJECT ? sizeof(struct member) : sizeof(struct node *);
}

/* Draws the kind of a node. The root and its children are containers (arrays and objects). The
 * deepest nodes are numbers and strings. At the depths between, most nodes are numbers and
 * strings. */
static enum kind kind_at(struct random *random, unsigned depth)
{
    uint64_t of_32 = random_below(random, 32);
    if (depth < 2 && depth < depth_most)
        return of_32 < 8 ? ARRAY : OBJECT;
    if (depth < depth_most && of_32 < 5)
        return of_32 < 2 ? ARRAY : OBJECT;
    return of_32 < 18 ? STRING : NUMBER;
}

static void grow(struct worker *worker, struct node *node)
{
    size_t bytes = place_bytes(node);
    uint64_t capacity = node->capacity > 0 ? 2 * node->capacity : PLACES_AT_FIRST;
    node->places = worker_realloc(worker, node->places, node->capacity * bytes, capacity * bytes);
    node->capacity = capacity;
}

static struct node *build(struct builder *builder, unsigned depth)
{
    struct worker *worker = builder->worker;
    struct random *random = &worker->random;
    struct node *node = worker_malloc(worker, sizeof *node);
    *node = (struct node){.kind = kind_at(random, depth)};
    builder->left--;
    if (node->kind == NUMBER) {
        node->number = random_next(random);
        builder->sum += node->number;
        return node;
    }
    if (node->kind == STRING) {
        node->text = block_new(worker, lengths[random_below(random, LENGTHS)]);
        return node;
    }
    uint64_t wanted = depth == 0 ? UINT32_MAX : random_below(random, MEMBERS_MOST + 1);
    while (node->count < wanted && builder->left > 0) {
        if (node->count == node->capacity)
            grow(worker, node);
        if (node->kind == OBJECT) {
            struct member *member = (struct member *)node->places + node->count;
            member->name = block_new(worker, 3 + random_below(random, 16));
            member->value = build(builder, depth + 1);
        } else {
            ((struct node **)node->places)[node->count] = build(builder, depth + 1);
        }
        node->count++;
    }
    builder->sum += node->count;
    return node;
}

static void block_use(struct worker *worker, struct block *block)
{
    block_read(worker, block);
}

/* Reads a node and all nodes below it. Frees the nodes if `drops` is true. Subtracts the number of
 * nodes from `found->left` and their values from `found->sum`. Both reach 0 if no node was lost. */
static void walk(struct builder *found, struct node *node, bool drops)
{
    void (*visit)(struct worker *, struct block *) = drops ? block_drop : block_use;
    if (found->left-- == 0)
        workload_fail("a document has more nodes than were built");
    found->sum -= node->kind == NUMBER ? node->number : node->kind == STRING ? 0 : node->count;
    if (node->kind == STRING)
        visit(found->worker, &node->text);
    if (node->kind == ARRAY)
        for (uint32_t i = 0; i < node->count; i++)
            walk(found, ((struct node **)node->places)[i], drops);
    if (node->kind == OBJECT) {
        struct member *members = node->places;
        for (uint32_t i = 0; i < node->count; i++) {
            visit(found->worker, &members[i].name);
            walk(found, members[i].value, drops);
        }
    }
    if (!drops)
        return;
    if (node->kind >= ARRAY)
        worker_free(found->worker, node->places, node->capacity * place_bytes(node));
    worker_free(found->worker, node, sizeof *node);
}

static void document_walk(struct worker *worker, struct document *document, bool drops)
{
    struct builder found = {worker, document->nodes, document->sum};
    walk(&found, document->root, drops);
    if (found.left != 0 || found.sum != 0)
        worker->damaged++;
}

static void document_drop(struct worker *worker, struct document *document)
{
    if (document->root != NULL)
        document_walk(worker, document, true);
    *document = (struct document){0};
}

static struct document document_new(struct worker *worker, uint64_t nodes)
{
    struct builder builder = {worker, nodes, 0};
    struct document document = {.root = build(&builder, 0), .nodes = nodes};
    document.sum = builder.sum;
    worker_sum(worker, document.sum);
    document_walk(worker, &document, false);
    return document;
}

/* Replaces a random document by a new one. Returns the number of nodes of the new document. */
static uint64_t replace(struct worker *worker, struct document *documents, uint64_t count,
                        uint64_t left)
{
    struct document *document = &documents[random_below(&worker->random, count)];
    uint64_t nodes = size_log_uniform(&worker->random, parameter("least"), parameter("most"));
    document_drop(worker, document);
    *document = document_new(worker, nodes < left ? nodes : left);
    return document->nodes;
}

static void work(struct worker *worker)
{
    uint64_t count = parameter("documents");
    struct document *documents = table_new(count * sizeof *documents);
    while (worker_goes_on(worker)) {
        uint64_t made = 0;
        worker_begin(worker);
        while (made < workload.batch && worker->done + made < worker->share)
            made += replace(worker, documents, count, worker->share - worker->done - made);
        worker_end(worker, made);
    }
    for (uint64_t i = 0; i < count; i++)
        document_drop(worker, &documents[i]);
    table_free(documents, count * sizeof *documents);
}

const struct workload workload = {
    .name = "document",
    .title = "JSON-like documents are built node by node, walked, kept for a while and freed",
    .operation = "one node built, walked once, and freed with its document",
    .own = own,
    .operations = 8000000,
    .batch = 1000,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
