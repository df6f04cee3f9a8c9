/* A toy compiler that compiles unit after unit. Tokens are parsed into a tree of small nodes. Names
 * are looked up in nested scopes. Constants are folded and nodes rewritten, which frees some nodes
 * and allocates others of different sizes. Code is written into buffers that grow by realloc and
 * are cut to size at the end. The last --units units are kept, and an older unit is freed node by
 * node. Interned names live until the end.
 *
 * The workload tests large numbers of blocks of 24 to 100 bytes, temporary arrays and hash tables
 * between these blocks, and rare blocks that stay alive while all blocks around them die. It says
 * nothing about compilers that use an arena per unit. Nodes, symbols and tables are always written
 * in full, because the compiler reads them; --touch affects code and the text of names.
 */
#include "common/dictionary.h"

static struct parameter own[] = {
    {.name = "units",
     .help = "units that each thread keeps",
     .value = 64,
     .least = 1,
     .most = 1 << 20},
    {.name = "least", .help = "tokens of the smallest unit", .value = 100, .least = 1, .most = GIB},
    {.name = "most", .help = "tokens of the largest unit", .value = 30000, .least = 1, .most = GIB},
    {.name = "names",
     .help = "different names in all units",
     .value = 5000,
     .least = 1,
     .most = GIB},
    {0},
};

enum { DEPTH_MOST = 24, ITEMS_MEAN = 5, ROOM_AT_FIRST = 4 };

/* The kinds of nodes. There is one for each kind of token except CLOSE, which ends the items of a
 * CALL or BLOCK. */
enum kind { NUMBER, NAME, UNARY, BINARY, IF, LET, CALL, BLOCK };

static const unsigned char operands[] = {0, 0, 1, 2, 3, 1, 0, 0};
static const unsigned char share_of_64[] = {14, 18, 4, 14, 3, 4, 5, 2};

struct name {
    uint64_t hash;
    uint64_t length;
    char text[];
};

struct symbol {
    struct symbol *next; /* next symbol of the unit, the youngest first */
    const struct name *name;
    uint64_t constant;
    /* Number of assignments to the symbol. A constant may replace the symbol only if this number is
     * 1. */
    uint32_t assigned;
    bool is_constant;
};

struct node {
    unsigned char kind;
    unsigned char variant; /* number of the unary or binary operator */
    uint32_t count;        /* number of children */
    uint64_t line;         /* line in the unit */
    union {
        uint64_t number;
        struct symbol *symbol; /* of NAME, LET and CALL */
    };
    struct node *children[];
};

struct scope {
    struct scope *outer;
    struct dictionary symbols;
};

/* A growing list of nodes. It holds statements, or the children of a node whose number of children
 * is not known yet. */
struct list {
    struct node **nodes;
    uint64_t count;
    uint64_t room;
};

/* Code. --touch decides how many words are written. */
struct buffer {
    uint64_t *words;
    uint64_t count;
    uint64_t room;
    uint64_t sum; /* sum of the words written */
};

struct unit {
    struct list statements;
    struct symbol *symbols;
    struct buffer code;
    struct buffer calls; /* calls whose addresses a linker would fill in */
    /* The sum of node_sum() of all live nodes. It must be 0 after the last node has been freed. */
    uint64_t nodes_sum;
};

struct compiler {
    struct worker *worker;
    struct dictionary names;
    struct unit *unit;
    struct scope *scope;
    uint64_t left; /* tokens left in this unit */
    /* Number of tokens that are still needed to complete the expressions that were begun. */
    uint64_t owed;
    uint64_t line;
};

static unsigned char kinds[64]; /* each kind as often as share_of_64 says */
static uint64_t names;

static void prepare(void)
{
    if (parameter("most") < parameter("least"))
        workload_refuse("--most %zu is less than --least %zu", (size_t)parameter("most"),
                        (size_t)parameter("least"));
    names = parameter("names");
    unsigned place = 0;
    for (unsigned kind = 0; kind < COUNT_OF(share_of_64); kind++)
        for (unsigned i = 0; i < share_of_64[kind]; i++)
            kinds[place++] = (unsigned char)kind;
}

/* Nodes. */

static size_t node_bytes(uint32_t count)
{
    return sizeof(struct node) + count * sizeof(struct node *);
}

/* Returns a number that depends on all contents of a node except addresses. */
static uint64_t node_sum(const struct node *node)
{
    uint64_t head = (uint64_t)node->count << 16 | (uint64_t)node->variant << 8 | node->kind;
    return random_mix(head) + node->line + (node->kind == NUMBER ? node->number : 0);
}

static struct node *node_new(struct compiler *compiler, struct node like, struct node **children)
{
    struct node *node = worker_malloc(compiler->worker, node_bytes(like.count));
    *node = like;
    for (uint32_t i = 0; i < like.count; i++)
        node->children[i] = children[i];
    compiler->unit->nodes_sum += node_sum(node);
    return node;
}

static void node_free(struct worker *worker, struct unit *unit, struct node *node)
{
    unit->nodes_sum -= node_sum(node);
    worker_free(worker, node, node_bytes(node->count));
}

static void tree_drop(struct worker *worker, struct unit *unit, struct node *node)
{
    for (uint32_t i = 0; i < node->count; i++)
        tree_drop(worker, unit, node->children[i]);
    node_free(worker, unit, node);
}

static void list_add(struct worker *worker, struct list *list, struct node *node)
{
    if (list->count == list->room) {
        uint64_t room = list->room > 0 ? 2 * list->room : ROOM_AT_FIRST;
        list->nodes =
            worker_realloc(worker, list->nodes, list->room * sizeof node, room * sizeof node);
        list->room = room;
    }
    list->nodes[list->count++] = node;
}

static void list_free(struct worker *worker, struct list *list)
{
    worker_free(worker, list->nodes, list->room * sizeof *list->nodes);
}

/* Names and symbols. */

static void name_drop(struct worker *worker, uint64_t hash, void *item)
{
    struct name *name = item;
    size_t touched = touch_bytes(settings.touch, name->length);
    if (name->hash != hash || contents_sum(name->text, touched) != contents_expected(touched, hash))
        worker->damaged++;
    worker_free(worker, name, sizeof *name + name->length);
}

/* Returns a random name. A few names are used in most places: the frequency of name number n is
 * proportional to log(names / n). */
static const struct name *intern(struct compiler *compiler)
{
    struct random *random = &compiler->worker->random;
    uint64_t hash = random_mix(random_below(random, 1 + random_below(random, names)));
    struct name *name = dictionary_find(&compiler->names, hash);
    if (name != NULL)
        return name;
    size_t length = 1 + hash % 24;
    name = worker_malloc(compiler->worker, sizeof *name + length);
    *name = (struct name){hash, length};
    contents_write(name->text, 0, touch_bytes(settings.touch, length), hash);
    dictionary_put(compiler->worker, &compiler->names, hash, name);
    return name;
}

static struct symbol *declare(struct compiler *compiler, struct scope *scope,
                              const struct name *name)
{
    struct symbol *symbol = worker_malloc(compiler->worker, sizeof *symbol);
    *symbol = (struct symbol){.next = compiler->unit->symbols, .name = name};
    compiler->unit->symbols = symbol;
    dictionary_put(compiler->worker, &scope->symbols, name->hash, symbol);
    return symbol;
}

/* Returns the symbol of the name in the current scope. A name that was never declared belongs to
 * the outermost scope. */
static struct symbol *resolve(struct compiler *compiler, const struct name *name)
{
    for (struct scope *scope = compiler->scope;; scope = scope->outer) {
        struct symbol *symbol = dictionary_find(&scope->symbols, name->hash);
        if (symbol != NULL)
            return symbol;
        if (scope->outer == NULL)
            return declare(compiler, scope, name);
    }
}

/* Tokens. */

/* Returns the next token, where the grammar needs an operand. A token is chosen only if the tokens
 * that are left are enough to complete all expressions (`owed`). */
static enum kind next_operand(struct compiler *compiler, unsigned depth)
{
    enum kind kind = kinds[random_below(&compiler->worker->random, 64)];
    compiler->left--;
    compiler->owed--;
    compiler->line++;
    uint64_t wants = kind >= CALL ? 1 : operands[kind]; /* 1 for the CLOSE of a CALL or BLOCK */
    if (wants > 0 && (depth >= DEPTH_MOST || wants > compiler->left - compiler->owed))
        return NUMBER;
    compiler->owed += wants;
    return kind;
}

/* Returns whether another item follows in a CALL or BLOCK. If no item follows, the next token was
 * CLOSE and is consumed. */
static bool next_is_item(struct compiler *compiler)
{
    if (compiler->left > compiler->owed &&
        random_below(&compiler->worker->random, ITEMS_MEAN + 1) > 0) {
        compiler->owed++;
        return true;
    }
    compiler->left--;
    compiler->owed--;
    return false;
}

/* Passes. */

static struct node *parse(struct compiler *compiler, unsigned depth)
{
    struct worker *worker = compiler->worker;
    struct node node = {.kind = (unsigned char)next_operand(compiler, depth),
                        .line = compiler->line};
    struct node *children[3];
    if (node.kind == NUMBER)
        node.number = random_next(&worker->random) >> 48;
    else if (node.kind == NAME || node.kind == CALL)
        node.symbol = resolve(compiler, intern(compiler));
    else if (node.kind <= BINARY)
        node.variant = (unsigned char)random_below(&worker->random, 4);
    else if (node.kind == LET) {
        const struct name *name = intern(compiler);
        node.symbol = dictionary_find(&compiler->scope->symbols, name->hash);
        if (node.symbol == NULL)
            node.symbol = declare(compiler, compiler->scope, name);
        node.symbol->assigned++;
    }
    if (node.kind < CALL) {
        for (; node.count < operands[node.kind]; node.count++)
            children[node.count] = parse(compiler, depth + 1);
        return node_new(compiler, node, children);
    }
    struct scope scope = {.outer = compiler->scope};
    struct list items = {0};
    if (node.kind == BLOCK)
        compiler->scope = &scope;
    while (next_is_item(compiler))
        list_add(worker, &items, parse(compiler, depth + 1));
    compiler->scope = node.kind == BLOCK ? scope.outer : compiler->scope;
    dictionary_drop(worker, &scope.symbols, NULL);
    node.count = (uint32_t)items.count;
    struct node *list = node_new(compiler, node, items.nodes);
    list_free(worker, &items);
    return list;
}

/* Frees a tree and returns a node for a number in its place. */
static struct node *constant(struct compiler *compiler, struct node *node, uint64_t value)
{
    struct node like = {.kind = NUMBER, .line = node->line, .number = value};
    struct node *number = node_new(compiler, like, NULL);
    tree_drop(compiler->worker, compiler->unit, node);
    return number;
}

static uint64_t compute(unsigned variant, uint64_t left, uint64_t right)
{
    return variant == 0   ? left + right
           : variant == 1 ? left - right
           : variant == 2 ? left * right
                          : left ^ right;
}

/* Replaces a unary node by a binary one whose other operand is 0. */
static struct node *lower(struct compiler *compiler, struct node *node)
{
    struct node zero = {.kind = NUMBER, .line = node->line};
    struct node like = {.kind = BINARY, .variant = node->variant, .line = node->line, .count = 2};
    struct node *children[] = {node_new(compiler, zero, NULL), node->children[0]};
    struct node *binary = node_new(compiler, like, children);
    node_free(compiler->worker, compiler->unit, node);
    return binary;
}

static struct node *choose(struct compiler *compiler, struct node *node)
{
    unsigned chosen = node->children[0]->number % 2 == 0 ? 1 : 2;
    struct node *branch = node->children[chosen];
    tree_drop(compiler->worker, compiler->unit, node->children[0]);
    tree_drop(compiler->worker, compiler->unit, node->children[3 - chosen]);
    node_free(compiler->worker, compiler->unit, node);
    return branch;
}

/* Removes statements without effect from a block and cuts it to size. */
static struct node *prune(struct compiler *compiler, struct node *node)
{
    uint32_t kept = 0;
    uint32_t count = node->count;
    compiler->unit->nodes_sum -= node_sum(node);
    for (uint32_t i = 0; i < count; i++) {
        if (node->children[i]->kind <= NAME)
            tree_drop(compiler->worker, compiler->unit, node->children[i]);
        else
            node->children[kept++] = node->children[i];
    }
    if (kept < count)
        node = worker_realloc(compiler->worker, node, node_bytes(count), node_bytes(kept));
    node->count = kept;
    compiler->unit->nodes_sum += node_sum(node);
    return node;
}

static struct node *fold(struct compiler *compiler, struct node *node)
{
    for (uint32_t i = 0; i < node->count; i++)
        node->children[i] = fold(compiler, node->children[i]);
    struct node *first = node->count > 0 ? node->children[0] : NULL;
    bool is_number = first != NULL && first->kind == NUMBER;
    switch (node->kind) {
    case NAME:
        return node->symbol->is_constant && node->symbol->assigned == 1
                   ? constant(compiler, node, node->symbol->constant)
                   : node;
    case UNARY:
        return is_number ? constant(compiler, node, ~first->number) : lower(compiler, node);
    case BINARY:
        return is_number && node->children[1]->kind == NUMBER
                   ? constant(compiler, node,
                              compute(node->variant, first->number, node->children[1]->number))
                   : node;
    case IF:
        return is_number ? choose(compiler, node) : node;
    case LET:
        node->symbol->is_constant = is_number;
        node->symbol->constant = is_number ? first->number : 0;
        return node;
    case BLOCK:
        return prune(compiler, node);
    default:
        return node;
    }
}

static void buffer_add(struct worker *worker, struct buffer *buffer, uint64_t word)
{
    if (buffer->count == buffer->room) {
        uint64_t room = buffer->room > 0 ? 2 * buffer->room : ROOM_AT_FIRST;
        buffer->words =
            worker_realloc(worker, buffer->words, buffer->room * sizeof word, room * sizeof word);
        buffer->room = room;
    }
    if (settings.touch == TOUCH_ALL || (settings.touch == TOUCH_HEADER && buffer->count == 0)) {
        buffer->words[buffer->count] = word;
        buffer->sum += word;
    }
    buffer->count++;
}

static void buffer_cut(struct worker *worker, struct buffer *buffer)
{
    if (buffer->count == buffer->room)
        return;
    buffer->words = worker_realloc(worker, buffer->words, buffer->room * sizeof *buffer->words,
                                   buffer->count * sizeof *buffer->words);
    buffer->room = buffer->count;
}

static void buffer_drop(struct worker *worker, struct buffer *buffer)
{
    size_t touched = touch_bytes(settings.touch, buffer->count * sizeof *buffer->words);
    if (buffer->count > 0 && contents_sum(buffer->words, touched) != buffer->sum)
        worker->damaged++;
    worker_free(worker, buffer->words, buffer->room * sizeof *buffer->words);
}

static void emit(struct compiler *compiler, const struct node *node)
{
    struct unit *unit = compiler->unit;
    for (uint32_t i = 0; i < node->count; i++)
        emit(compiler, node->children[i]);
    uint64_t operand = node->kind == NUMBER                      ? node->number
                       : node->kind == NAME || node->kind == LET ? node->symbol->name->hash
                                                                 : node->line;
    buffer_add(compiler->worker, &unit->code, operand << 8 | node->kind);
    if (node->kind == CALL)
        buffer_add(compiler->worker, &unit->calls, node->symbol->name->hash);
}

/* Units. */

static void compile(struct compiler *compiler, struct unit *unit, uint64_t tokens)
{
    struct worker *worker = compiler->worker;
    struct scope outermost = {0};
    compiler->unit = unit;
    compiler->scope = &outermost;
    compiler->line = 0;
    for (compiler->left = tokens; compiler->left > 0;) {
        compiler->owed = 1;
        list_add(worker, &unit->statements, parse(compiler, 0));
    }
    for (uint64_t i = 0; i < unit->statements.count; i++)
        unit->statements.nodes[i] = fold(compiler, unit->statements.nodes[i]);
    for (uint64_t i = 0; i < unit->statements.count; i++)
        emit(compiler, unit->statements.nodes[i]);
    dictionary_drop(worker, &outermost.symbols, NULL);
    buffer_cut(worker, &unit->code);
    buffer_cut(worker, &unit->calls);
    worker_sum(worker, unit->nodes_sum + unit->code.sum + unit->calls.sum);
}

static void unit_drop(struct worker *worker, struct unit *unit)
{
    for (uint64_t i = 0; i < unit->statements.count; i++)
        tree_drop(worker, unit, unit->statements.nodes[i]);
    list_free(worker, &unit->statements);
    while (unit->symbols != NULL) {
        struct symbol *symbol = unit->symbols;
        unit->symbols = symbol->next;
        worker_free(worker, symbol, sizeof *symbol);
    }
    buffer_drop(worker, &unit->code);
    buffer_drop(worker, &unit->calls);
    if (unit->nodes_sum != 0)
        worker->damaged++;
    *unit = (struct unit){0};
}

static void work(struct worker *worker)
{
    uint64_t count = parameter("units");
    uint64_t next = 0; /* index of the oldest unit, which is replaced next */
    struct unit *units = table_new(count * sizeof *units);
    struct compiler compiler = {.worker = worker};
    while (worker_goes_on(worker)) {
        uint64_t done = 0;
        worker_begin(worker);
        while (done < workload.batch && worker->done + done < worker->share) {
            uint64_t tokens =
                size_log_uniform(&worker->random, parameter("least"), parameter("most"));
            uint64_t left = worker->share - worker->done - done;
            unit_drop(worker, &units[next]);
            compile(&compiler, &units[next], tokens < left ? tokens : left);
            done += tokens < left ? tokens : left;
            next = (next + 1) % count;
        }
        worker_end(worker, done);
    }
    for (uint64_t i = 0; i < count; i++)
        unit_drop(worker, &units[i]);
    dictionary_drop(worker, &compiler.names, name_drop);
    table_free(units, count * sizeof *units);
}

const struct workload workload = {
    .name = "syntax_tree",
    .title = "a toy compiler: units are parsed into trees, folded, turned into code, kept for a "
             "while and freed",
    .operation = "one token parsed, folded, turned into code, and freed with its unit",
    .own = own,
    .operations = 8000000,
    .batch = 1000,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
