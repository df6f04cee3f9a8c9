#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    STEPS = 2000, /* in one execution */
    LINES = 4096, /* of a printed schedule */
    STACK_BYTES = 1 << 16,
};

struct operation {
    enum explore_kind kind;
    const void *address;
    struct memory_object *object;
};

/* A state of an execution: the next step of every thread, and which threads were tried from here.
 * Bit i of a mask stands for thread i. */
struct node {
    struct operation pending[MODEL_CHECKER_THREADS_MAX];
    uint8_t enabled; /* threads that can take a step */
    /* Threads to try from this state. Starting with any other thread leads to no new outcome. */
    uint8_t wanted;
    uint8_t asleep;  /* threads that were tried, or lead to nothing new */
    uint8_t chosen;  /* number of the thread that took a step here */
    uint8_t choice;  /* if it loaded: age of the message; 0: newest */
    uint8_t choices; /* number of messages that it could load */
    /* By thread: the thread's last step that happened before the step taken in this state. */
    uint16_t before[MODEL_CHECKER_THREADS_MAX];
};

static struct thread {
    jmp_buf start;
    jmp_buf resume;
    bool begun;
    bool finished;
    struct operation pending;
    unsigned choice;
    /* For every thread, the number of its last step that happened before this thread's next step.
     * Steps are numbered from 1. */
    uint16_t before[MODEL_CHECKER_THREADS_MAX];
    uint16_t steps; /* number of this thread's last step */
} threads[MODEL_CHECKER_THREADS_MAX];
static char *stacks[MODEL_CHECKER_THREADS_MAX];

static const struct model_checker_plan *plan;
static jmp_buf explorer;
static int current = -1;

static struct node nodes[STEPS];
static unsigned length;  /* number of nodes of the newest execution */
static unsigned stale;   /* loads of replaced values in the newest execution */
static uint16_t stop;    /* the step that stopped all other threads; 0: none */
static unsigned stopper; /* the thread that took the step `stop` */

static struct line {
    int thread;
    const char *text; /* NULL: the line is a step */
    enum explore_kind kind;
    unsigned older;
    const void *about;
    uint64_t value;
} lines[LINES];
static unsigned line_count;
static char failure[512];

/* --- switching -------------------------------------------------------------------------------- */

enum { RAN = 1, FAILED = 2 };

int model_checker_self(void)
{
    return current;
}

void model_checker_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    _longjmp(explorer, FAILED);
}

static void begin_thread(void)
{
    if (_setjmp(threads[current].start) == 0)
        _longjmp(explorer, RAN);
    plan->body((unsigned)current);
    threads[current].finished = true;
    _longjmp(explorer, RAN);
}

/* Makes the stack of a thread, so that the thread can be started any number of times. */
static void make_thread(unsigned thread)
{
    static ucontext_t context;
    if (stacks[thread] == NULL && (stacks[thread] = malloc(STACK_BYTES)) == NULL)
        abort();
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[thread];
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, begin_thread, 0);
    current = (int)thread;
    if (_setjmp(explorer) == 0)
        setcontext(&context);
    current = -1;
}

/* Runs the thread up to its next step. Returns false if the thread reported a failure. */
static bool resume(unsigned thread)
{
    current = (int)thread;
    threads[thread].pending.kind = EXPLORE_NOTHING;
    plan->enter(thread);
    int came = _setjmp(explorer);
    if (came == 0) {
        if (threads[thread].begun)
            _longjmp(threads[thread].resume, 1);
        threads[thread].begun = true;
        _longjmp(threads[thread].start, 1);
    }
    plan->leave((unsigned)current);
    current = -1;
    return came == RAN;
}

/* Calls a function of the plan outside all threads. Returns false if it reported a failure. */
static bool call(void (*what)(void))
{
    int came = _setjmp(explorer);
    if (came == 0)
        what();
    return came != FAILED;
}

unsigned explore_step(enum explore_kind kind, struct memory_object *object)
{
    struct thread *self = &threads[current];
    self->pending = (struct operation){kind, object == NULL ? NULL : object->address, object};
    if (_setjmp(self->resume) == 0)
        _longjmp(explorer, RAN);
    return threads[current].choice;
}

/* --- which orders make a difference ----------------------------------------------------------- */

static bool writes(enum explore_kind kind)
{
    return kind != EXPLORE_LOAD;
}

static bool independent(const struct operation *one, const struct operation *other)
{
    if (one->kind == EXPLORE_STOP || other->kind == EXPLORE_STOP)
        return false;
    return one->address != other->address || (!writes(one->kind) && !writes(other->kind));
}

/* Returns the last step of `thread` that does not commute with the operation, or 0. In another
 * order of steps, this step could come after the operation. */
static unsigned last_conflict(const struct operation *operation, unsigned thread)
{
    unsigned last = stop != 0 && thread == stopper ? stop : 0;
    if (operation->kind == EXPLORE_STOP)
        return threads[thread].steps;
    const struct memory_object *object = operation->object;
    if (object->last_write[thread] > last)
        last = object->last_write[thread];
    if (writes(operation->kind) && object->last_read[thread] > last)
        last = object->last_read[thread];
    return last;
}

static void join(uint16_t *before, const uint16_t *other)
{
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
        if (other[i] > before[i])
            before[i] = other[i];
}

/* Computes, for every thread, the number of its last step that would happen before the next step of
 * `thread`, if `thread` took this step now. */
static void order_of_next(unsigned thread, uint16_t *before)
{
    const struct operation *next = &threads[thread].pending;
    memmove(before, threads[thread].before, sizeof threads[thread].before);
    if (next->kind == EXPLORE_STOP) {
        for (unsigned q = 0; q < plan->threads; q++)
            join(before, threads[q].before);
        return;
    }
    join(before, next->object->written_before);
    if (writes(next->kind))
        join(before, next->object->read_before);
}

/* Returns a mask of the threads that can go first from the state before step number `conflict`, so
 * that p's next step comes before that step. Looks at the steps after `conflict` that happen before
 * p's next step and do not depend on step `conflict`. A thread is in the mask if its first such
 * step depends on no step that another thread took after `conflict`. If there is no such step, the
 * mask has p alone. */
static unsigned leads(unsigned p, const uint16_t *before_next, unsigned conflict)
{
    unsigned by = nodes[conflict - 1].chosen;
    unsigned met = 0;
    unsigned found = 0;
    for (unsigned step = conflict + 1; step <= length; step++) {
        const struct node *node = &nodes[step - 1];
        unsigned q = node->chosen;
        if ((met >> q & 1) != 0 || step > before_next[q] || node->before[by] >= conflict)
            continue;
        met |= 1u << q;
        found |= 1u << q;
        for (unsigned r = 0; r < plan->threads; r++)
            if (r != q && node->before[r] > conflict)
                found &= ~(1u << q);
    }
    return met == 0 ? 1u << p : found;
}

/* For every thread's next step, finds the earlier steps that conflict with it, unless other steps
 * between the two already fix their order. The state before each such earlier step must be explored
 * once more with the two steps in the other order. One of the threads that can go first there is
 * enough (source sets: Abdulla, Aronis, Jonsson and Sagonas, POPL 2014). */
static void want_other_orders(void)
{
    for (unsigned p = 0; p < plan->threads; p++) {
        if (threads[p].pending.kind == EXPLORE_NOTHING)
            continue;
        unsigned conflicts[MODEL_CHECKER_THREADS_MAX] = {0};
        for (unsigned q = 0; q < plan->threads; q++) {
            unsigned last = q == p ? 0 : last_conflict(&threads[p].pending, q);
            if (last > threads[p].before[q])
                conflicts[q] = last;
        }
        uint16_t before_next[MODEL_CHECKER_THREADS_MAX];
        order_of_next(p, before_next);
        for (unsigned q = 0; q < plan->threads; q++) {
            bool direct = conflicts[q] != 0;
            for (unsigned r = 0; r < plan->threads; r++)
                if (conflicts[r] > conflicts[q] &&
                    nodes[conflicts[r] - 1].before[q] >= conflicts[q])
                    direct = false;
            if (!direct)
                continue;
            struct node *node = &nodes[conflicts[q] - 1];
            unsigned lead = leads(p, before_next, conflicts[q]) & node->enabled;
            if (lead == 0)
                node->wanted |= node->enabled;
            else if ((lead & node->wanted) == 0)
                node->wanted |= (uint8_t)((lead >> p & 1) != 0 ? 1u << p : lead & -lead);
        }
    }
}

/* Records that the thread takes `step` now, and which steps happened before it. The function writes
 * this to the thread, to the node of the state, and to the object that the step accesses. */
static void take_order(unsigned thread, uint16_t step)
{
    struct thread *self = &threads[thread];
    struct memory_object *object = self->pending.object;
    order_of_next(thread, self->before);
    if (self->pending.kind == EXPLORE_STOP) {
        stop = step;
        stopper = thread;
    }
    self->before[thread] = step;
    self->steps = step;
    memcpy(nodes[step - 1].before, self->before, sizeof self->before);
    if (object == NULL)
        return;
    if (writes(self->pending.kind)) {
        join(object->written_before, self->before);
        object->last_write[thread] = step;
    } else {
        join(object->read_before, self->before);
        object->last_read[thread] = step;
    }
}

void explore_dropped(struct memory_object *lock)
{
    join(lock->written_before, threads[current].before);
}

/* --- the printed schedule --------------------------------------------------------------------- */

static void add_line(struct line line)
{
    line.thread = current;
    if (line_count < LINES)
        lines[line_count++] = line;
}

void model_checker_note(const char *text, const void *about)
{
    add_line((struct line){.text = text, .about = about});
}

void explore_came_to(uint64_t value)
{
    if (line_count > 0 && line_count <= LINES)
        lines[line_count - 1].value = value;
}

void model_checker_stop_others(void)
{
    explore_step(EXPLORE_STOP, NULL);
    memory_know_all();
}

static void print_line(const struct line *line)
{
    static const char *const kinds[] = {"",        "loads", "stores to",
                                        "changes", "takes", "stops all others"};
    char name[128] = "";
    char value[128] = "";
    if (line->about != NULL)
        model_checker_describe(line->about, name, sizeof name);
    const char *who =
        line->thread < 0 ? "after" : model_checker_thread_name((unsigned)line->thread);
    if (line->text != NULL) {
        fprintf(stderr, "    %-6s -- %s %s\n", who, line->text, name);
        return;
    }
    if (line->kind != EXPLORE_TAKE && line->kind != EXPLORE_STOP)
        model_checker_describe_value(line->about, line->value, value, sizeof value);
    fprintf(stderr, "    %-6s %s %s%s%s%s\n", who, kinds[line->kind], name,
            value[0] != '\0' ? ": " : "", value, line->older > 0 ? " (already replaced)" : "");
}

static void print_failure(void)
{
    fprintf(stderr, "%s: %s\n", plan->name, failure);
    for (unsigned i = 0; i < line_count; i++)
        print_line(&lines[i]);
    fprintf(stderr, "  to repeat it: --scenario '%s' --replay ", plan->name);
    for (unsigned i = 0; i < length; i++) {
        fprintf(stderr, "%u", nodes[i].chosen);
        for (unsigned older = 0; older < nodes[i].choice; older++)
            fputc('-', stderr);
    }
    fputc('\n', stderr);
}

/* --- executions ------------------------------------------------------------------------------- */

enum ending { DONE, CUT, FAILURE };

static unsigned look_at_threads(struct node *node)
{
    unsigned left = 0;
    node->enabled = 0;
    for (unsigned i = 0; i < plan->threads; i++) {
        struct thread *thread = &threads[i];
        node->pending[i] = thread->pending;
        if (thread->finished || (stop != 0 && i != stopper))
            continue;
        left++;
        if (thread->pending.kind != EXPLORE_TAKE || *(const uint32_t *)thread->pending.address == 0)
            node->enabled |= (uint8_t)(1u << i);
    }
    return left;
}

/* Chooses the thread that goes on from a state that was not seen before. Returns false if all
 * orders that can follow were explored already. */
static bool choose(struct node *node, const struct node *before)
{
    node->asleep = 0;
    if (before != NULL) {
        for (unsigned i = 0; i < plan->threads; i++)
            if ((before->asleep >> i & 1) != 0 && !plan->every_order &&
                independent(&before->pending[i], &before->pending[before->chosen]))
                node->asleep |= (uint8_t)(1u << i);
    }
    unsigned awake = node->enabled & ~(unsigned)node->asleep;
    if (awake == 0)
        return false;
    bool goes_on = before != NULL && (awake >> before->chosen & 1) != 0;
    node->chosen = goes_on ? before->chosen : (uint8_t)__builtin_ctz(awake);
    node->wanted = plan->every_order ? node->enabled : (uint8_t)(1u << node->chosen);
    node->choice = 0;
    return true;
}

static enum ending fail(const char *text)
{
    snprintf(failure, sizeof failure, "%s", text);
    return FAILURE;
}

/* Runs one execution. It follows the first `known` nodes, and chooses freely from there. */
static enum ending execute(unsigned known)
{
    memory_begin();
    plan->begin();
    line_count = 0;
    stale = 0;
    stop = 0;
    length = 0;
    for (unsigned i = 0; i < plan->threads; i++) {
        struct thread *thread = &threads[i];
        thread->begun = thread->finished = false;
        memset(thread->before, 0, sizeof thread->before);
        thread->steps = 0;
    }
    for (unsigned i = 0; i < plan->threads; i++)
        if (!resume(i))
            return FAILURE;
    const char *replay = plan->replay;
    for (;;) {
        if (length == STEPS)
            return fail("the execution does not end");
        struct node *node = &nodes[length];
        unsigned left = look_at_threads(node);
        if (length >= known)
            want_other_orders();
        if (left == 0)
            break;
        if (node->enabled == 0)
            return fail("deadlock: every remaining thread waits for a lock");
        if (replay != NULL) {
            if (*replay < '0' || *replay >= '0' + (int)plan->threads)
                break; /* a printed schedule ends here */
            node->chosen = (uint8_t)(*replay++ - '0');
            for (node->choice = 0; *replay == '-'; replay++)
                node->choice++;
            if ((node->enabled >> node->chosen & 1) == 0)
                return fail("the schedule is not one of this scenario");
        } else if (length >= known && !choose(node, length > 0 ? node - 1 : NULL)) {
            return CUT;
        }
        struct thread *thread = &threads[node->chosen];
        if (node->choice == 0) {
            node->choices = 1;
            if (thread->pending.kind == EXPLORE_LOAD && stale < plan->stale_most)
                node->choices = (uint8_t)memory_choices(thread->pending.object, node->chosen);
        }
        if (node->choice > 0)
            stale++;
        thread->choice = node->choice;
        length++;
        take_order(node->chosen, (uint16_t)length);
        current = node->chosen;
        add_line((struct line){
            .kind = thread->pending.kind, .about = thread->pending.address, .older = node->choice});
        if (!resume(node->chosen))
            return FAILURE;
    }
    return call(plan->check) ? DONE : FAILURE;
}

/* Moves back to the deepest state in which another message or thread is left to try. Returns the
 * length of the execution up to that state, inclusive, or 0 if there is no such state. */
static unsigned next_to_try(void)
{
    for (; length > 0; length--) {
        struct node *node = &nodes[length - 1];
        if (node->choice + 1 < node->choices) {
            node->choice++;
            return length;
        }
        node->asleep |= (uint8_t)(1u << node->chosen);
        unsigned rest = node->wanted & node->enabled & ~(unsigned)node->asleep;
        if (rest != 0) {
            node->chosen = (uint8_t)__builtin_ctz(rest);
            node->choice = 0;
            return length;
        }
    }
    return 0;
}

struct model_checker_result model_checker_explore(const struct model_checker_plan *what)
{
    struct model_checker_result result = {0};
    plan = what;
    for (unsigned i = 0; i < plan->threads; i++)
        make_thread(i);
    size_t before = memory_mark();
    line_count = 0;
    length = 0;
    result.failed = !call(plan->setup);
    size_t set_up = memory_mark();
    for (unsigned known = 0; !result.failed;) {
        enum ending ending = execute(known);
        result.executions += ending != CUT;
        result.cut += ending == CUT;
        if (length > result.longest)
            result.longest = length;
        result.failed = ending == FAILURE;
        if (result.failed)
            break;
        memory_undo(set_up);
        known = plan->replay != NULL ? 0 : next_to_try();
        result.exhausted = known == 0;
        if (known == 0 || result.executions + result.cut >= plan->executions_most)
            break;
    }
    if (result.failed && !plan->quiet)
        print_failure();
    memory_undo(before);
    return result;
}
