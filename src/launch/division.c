#define _GNU_SOURCE 1

#include "launch/division.h"

#include <assert.h>

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct division division_begin(uint64_t page_bytes)
{
    return (struct division){.page_bytes = page_bytes};
}

static bool is_older(const struct division_process *one, const struct division_process *other)
{
    return one->started != other->started ? one->started < other->started : one->pid < other->pid;
}

/* Sorts the processes by their age, so that a parent comes before its children. */
static void sort(struct division_process *processes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct division_process moved = processes[i];
        size_t to = i;
        for (; to > 0 && is_older(&moved, &processes[to - 1]); to--)
            processes[to] = processes[to - 1];
        processes[to] = moved;
    }
}

static struct division_known *find(struct division *division, pid_t pid)
{
    for (size_t i = 0; i < division->count; i++) {
        if (division->known[i].now.pid == pid)
            return &division->known[i];
    }
    return NULL;
}

/* Returns the size that a child had when it was forked. `parent` is its parent at this reading, and
 * `before` is the parent at the previous reading. The result is the size of `before`, within two
 * limits: the child has grown by at most one page with each of its faults, and neither the child
 * nor the parent has become smaller since the fork. */
static uint64_t size_at_fork(const struct division *division, const struct division_process *child,
                             const struct division_process *parent,
                             const struct division_process *before)
{
    uint64_t least = less(child->anon_bytes, child->faults * division->page_bytes);
    uint64_t most = min(child->anon_bytes, parent->anon_bytes);
    uint64_t size = before->anon_bytes > least ? before->anon_bytes : least;
    return min(size, most);
}

/* Notes that `parent` has a child now. `size` is the size of both at the fork. `before` is the
 * parent at the previous reading. From then until the fork, each page by which the parent grew is
 * taken to be one fault. */
static void note_child(const struct division *division, struct division_known *parent,
                       const struct division_process *before, uint64_t size)
{
    if (parent->has_child)
        return;
    parent->has_child = true;
    /* `inherited_bytes` of a child was set when the child itself was forked. */
    if (parent->is_child)
        return;
    parent->inherited_bytes = size;
    parent->faults_before = before->faults + less(size, before->anon_bytes) / division->page_bytes;
}

/* Returns what is known of a process at its first reading. If a process of the tree forked it, it
 * joins the family of that process. `before` has the older processes of this reading, each as it
 * was at the previous reading. */
static struct division_known begun(struct division *division, const struct division_process *now,
                                   const struct division_process *before, size_t count)
{
    struct division_known known = {.now = *now, .seen = true};
    struct division_known *parent = now->forked ? find(division, now->parent) : NULL;
    known.is_child = parent != NULL && parent->seen && parent->now.stack == now->stack;
    if (!known.is_child) {
        known.family = ++division->families;
        return known;
    }
    known.family = parent->family;
    for (size_t i = 0; i < count; i++) {
        if (before[i].pid != now->parent)
            continue;
        known.inherited_bytes = size_at_fork(division, now, &parent->now, &before[i]);
        note_child(division, parent, &before[i], known.inherited_bytes);
    }
    return known;
}

static void drop_unseen(struct division *division)
{
    size_t kept = 0;
    for (size_t i = 0; i < division->count; i++) {
        if (division->known[i].seen)
            division->known[kept++] = division->known[i];
    }
    division->count = kept;
}

/* Updates what is known of the processes. */
static void follow(struct division *division, const struct division_process *processes,
                   size_t count)
{
    struct division_process before[DIVISION_PROCESSES_MAX];
    for (size_t i = 0; i < division->count; i++)
        division->known[i].seen = false;
    for (size_t i = 0; i < count; i++) {
        const struct division_process *now = &processes[i];
        struct division_known *known = find(division, now->pid);
        bool same = known != NULL && known->now.started == now->started &&
                    known->now.stack == now->stack && known->now.forked == now->forked;
        before[i] = same ? known->now : *now;
        if (same) {
            known->now = *now;
            known->seen = true;
            continue;
        }
        struct division_known fresh = begun(division, now, before, i);
        if (known == NULL && division->count == DIVISION_PROCESSES_MAX)
            drop_unseen(division);
        if (known == NULL)
            known = &division->known[division->count++];
        *known = fresh;
    }
    drop_unseen(division);
}

/* Returns the largest process of a family. */
static const struct division_known *largest_of(const struct division *division, uint64_t family)
{
    const struct division_known *largest = NULL;
    for (size_t i = 0; i < division->count; i++) {
        const struct division_known *known = &division->known[i];
        if (known->family == family &&
            (largest == NULL || known->now.anon_bytes > largest->now.anon_bytes))
            largest = known;
    }
    return largest;
}

/* Returns the number of shared pages to which the process wrote. */
static uint64_t written_pages(const struct division *division, const struct division_known *known)
{
    uint64_t growth = less(known->now.anon_bytes, known->inherited_bytes) / division->page_bytes;
    uint64_t faults = less(known->now.faults, known->faults_before);
    return min(less(faults, growth), known->inherited_bytes / division->page_bytes);
}

void division_add(struct division *division, struct division_process *processes, size_t count,
                  uint64_t anon_bytes, uint64_t shmem_bytes, bool shared_once)
{
    if (count == 0 || count > DIVISION_PROCESSES_MAX)
        return;
    sort(processes, count);
    follow(division, processes, count);
    struct division_result result = {
        .processes = count,
        .total_bytes = anon_bytes + shmem_bytes,
        .has_copied = shared_once,
    };
    if (result.total_bytes <= division->result.total_bytes)
        return;
    uint64_t uncopied = 0, inherited = 0;
    for (size_t i = 0; i < division->count; i++) {
        const struct division_known *known = &division->known[i];
        const struct division_known *largest = largest_of(division, known->family);
        uint64_t size = known->now.anon_bytes;
        if (known != largest) {
            uint64_t shared = known->is_child ? known->inherited_bytes : largest->inherited_bytes;
            uncopied += less(size, shared);
            inherited += shared;
        } else {
            uncopied += size;
        }
        if (known->is_child)
            result.child_pages += written_pages(division, known);
        else if (known->has_child)
            result.parent_pages += written_pages(division, known);
        if (size > result.largest_bytes)
            result.largest_bytes = size;
    }
    result.largest_bytes = min(result.largest_bytes, result.total_bytes);
    if (shared_once)
        result.copied_bytes = min(min(less(anon_bytes, uncopied), inherited),
                                  result.total_bytes - result.largest_bytes);
    division->result = result;
}

void division_check(const struct division *division)
{
    const struct division_result *result = &division->result;
    assert(division->count <= DIVISION_PROCESSES_MAX);
    assert(result->largest_bytes + result->copied_bytes <= result->total_bytes);
    assert(result->has_copied || result->copied_bytes == 0);
}
