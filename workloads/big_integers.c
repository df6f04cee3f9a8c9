/* Arithmetic on integers of any length, as in interpreters and computer algebra. Every result is a
 * fresh block of its own length, and the operands are freed a step later. The program computes
 * factorials, Fibonacci sequences, powers, products of ranges, the digits of e and conversions to
 * decimal. Short numbers are multiplied by the schoolbook method. From 24 limbs on, Karatsuba's
 * method (1962) is used, whose intermediate results are blocks, too.
 *
 * The workload tests allocation and free in quick succession. Each block is often a few bytes
 * larger than the one before. It says nothing about large heaps, because few numbers are alive at a
 * time except the last results. Numbers are always written in full, because later results depend on
 * them, so --touch has no effect.
 */
#include "common/workload.h"

#include <string.h>

static struct parameter own[] = {
    {.name = "most",
     .help = "approximate length of the largest results, in limbs of 8 bytes",
     .value = 40,
     .least = 2,
     .most = 1 << 16},
    {.name = "results",
     .help = "results that each thread keeps",
     .value = 50000,
     .least = 1,
     .most = 1 << 24},
    {0},
};

enum { KARATSUBA_FROM = 24, GROUP = 1000000000, STEPS_OF_SEQUENCE = 100, DIGITS_LIMBS_MOST = 6 };

/* A number. Its highest limb is not zero once finish() has run. */
struct number {
    uint32_t length; /* limbs in use; 0 for the number zero */
    uint32_t room;   /* limbs allocated */
    /* The number modulo 2^64 - 1, computed from the residues of the operands. It must equal the
     * residue of the limbs, as in casting out nines. */
    uint64_t residue;
    uint64_t limbs[]; /* the lowest limb first */
};

struct calculation {
    struct worker *worker;
    uint64_t left; /* operations that may still be done */
    struct number **results;
    uint64_t next_result;
};

static size_t limbs_most;
static uint64_t results_count;

static void prepare(void)
{
    limbs_most = parameter("most");
    results_count = parameter("results");
}

/* Limbs. */

static uint64_t residue_of(unsigned __int128 value)
{
    uint64_t low = (uint64_t)value;
    uint64_t sum = low + (uint64_t)(value >> 64);
    sum += sum < low;
    return sum == UINT64_MAX ? 0 : sum;
}

static uint64_t residue_of_limbs(const uint64_t *limbs, size_t length)
{
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < length; i++)
        sum += limbs[i];
    return residue_of(sum);
}

/* Adds `limbs` to `to`, which has `room` limbs. The caller makes sure that the sum fits. */
static void add_to(uint64_t *to, size_t room, const uint64_t *limbs, size_t length)
{
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < room && (i < length || sum != 0); i++) {
        sum += (unsigned __int128)to[i] + (i < length ? limbs[i] : 0);
        to[i] = (uint64_t)sum;
        sum >>= 64;
    }
}

/* Subtracts `limbs` from `from`. `limbs` must not be larger than `from`. */
static void take_from(uint64_t *from, const uint64_t *limbs, size_t length)
{
    uint64_t borrow = 0;
    for (size_t i = 0; i < length || borrow > 0; i++) {
        unsigned __int128 taken = (unsigned __int128)(i < length ? limbs[i] : 0) + borrow;
        borrow = taken > from[i];
        from[i] -= (uint64_t)taken;
    }
}

static void multiply_plain(uint64_t *to, const uint64_t *a, size_t a_length, const uint64_t *b,
                           size_t b_length)
{
    memset(to, 0, a_length * sizeof *to);
    for (size_t j = 0; j < b_length; j++) {
        unsigned __int128 sum = 0;
        for (size_t i = 0; i < a_length; i++) {
            sum += (unsigned __int128)a[i] * b[j] + to[i + j];
            to[i + j] = (uint64_t)sum;
            sum >>= 64;
        }
        to[a_length + j] = (uint64_t)sum;
    }
}

static uint64_t *temporary(struct worker *worker, size_t length)
{
    return worker_malloc(worker, length * sizeof(uint64_t));
}

static void multiply_limbs(struct worker *worker, uint64_t *to, const uint64_t *a, size_t a_length,
                           const uint64_t *b, size_t b_length);

/* Multiplies by Karatsuba's method. `a` and `b` have more than `half` limbs and at most twice as
 * many. Each number is split into a high part (a1, b1) and a low part (a0, b0) of `half` limbs, and
 * x is 2^64 to the power of `half`:
 *
 *     (a1 x + a0)(b1 x + b0) = a1 b1 x² + ((a1 + a0)(b1 + b0) - a1 b1 - a0 b0) x + a0 b0
 */
static void multiply_karatsuba(struct worker *worker, uint64_t *to, const uint64_t *a,
                               size_t a_length, const uint64_t *b, size_t b_length, size_t half)
{
    size_t sum_length = half + 1;
    uint64_t *a_sum = temporary(worker, sum_length);
    uint64_t *b_sum = temporary(worker, sum_length);
    uint64_t *middle = temporary(worker, 2 * sum_length);
    memcpy(a_sum, a, half * sizeof *a);
    memcpy(b_sum, b, half * sizeof *b);
    a_sum[half] = b_sum[half] = 0;
    add_to(a_sum, sum_length, a + half, a_length - half);
    add_to(b_sum, sum_length, b + half, b_length - half);
    multiply_limbs(worker, middle, a_sum, sum_length, b_sum, sum_length);
    multiply_limbs(worker, to, a, half, b, half);
    multiply_limbs(worker, to + 2 * half, a + half, a_length - half, b + half, b_length - half);
    take_from(middle, to, 2 * half);
    take_from(middle, to + 2 * half, a_length + b_length - 2 * half);
    add_to(to + half, a_length + b_length - half, middle, 2 * sum_length);
    worker_free(worker, middle, 2 * sum_length * sizeof *middle);
    worker_free(worker, b_sum, sum_length * sizeof *b_sum);
    worker_free(worker, a_sum, sum_length * sizeof *a_sum);
}

/* Writes the product of `a` and `b` to `to`, which has a_length + b_length limbs. */
static void multiply_limbs(struct worker *worker, uint64_t *to, const uint64_t *a, size_t a_length,
                           const uint64_t *b, size_t b_length)
{
    if (a_length < b_length) {
        multiply_limbs(worker, to, b, b_length, a, a_length);
        return;
    }
    size_t half = (a_length + 1) / 2;
    if (b_length < KARATSUBA_FROM) {
        multiply_plain(to, a, a_length, b, b_length);
    } else if (b_length > half) {
        multiply_karatsuba(worker, to, a, a_length, b, b_length, half);
    } else {
        /* Cuts `a` into pieces of `half` limbs and multiplies each piece by `b`. */
        uint64_t *product = temporary(worker, half + b_length);
        memset(to, 0, (a_length + b_length) * sizeof *to);
        for (size_t from = 0; from < a_length; from += half) {
            size_t length = from + half < a_length ? half : a_length - from;
            multiply_limbs(worker, product, a + from, length, b, b_length);
            add_to(to + from, a_length + b_length - from, product, length + b_length);
        }
        worker_free(worker, product, (half + b_length) * sizeof *product);
    }
}

/* Numbers. */

static size_t number_bytes(uint32_t room)
{
    return sizeof(struct number) + room * sizeof(uint64_t);
}

static struct number *number_new(struct worker *worker, size_t room)
{
    struct number *number = worker_malloc(worker, number_bytes((uint32_t)room));
    number->length = number->room = (uint32_t)room;
    return number;
}

static struct number *number_of(struct worker *worker, uint64_t value)
{
    struct number *number = number_new(worker, 1);
    number->limbs[0] = value;
    number->length = value > 0;
    number->residue = residue_of(value);
    return number;
}

static struct number *number_random(struct worker *worker, size_t length)
{
    struct number *number = number_new(worker, length);
    for (size_t i = 0; i < length; i++)
        number->limbs[i] = random_next(&worker->random) | 1;
    number->residue = residue_of_limbs(number->limbs, length);
    return number;
}

static void number_drop(struct worker *worker, struct number *number)
{
    if (number == NULL)
        return;
    if (number->length > number->room ||
        residue_of_limbs(number->limbs, number->length) != number->residue)
        worker->damaged++;
    worker_free(worker, number, number_bytes(number->room));
}

static struct number *finish(struct calculation *calculation, struct number *number,
                             uint64_t residue)
{
    while (number->length > 0 && number->limbs[number->length - 1] == 0)
        number->length--;
    number->residue = residue;
    calculation->left--;
    return number;
}

static struct number *add(struct calculation *calculation, const struct number *a,
                          const struct number *b)
{
    const struct number *longer = a->length > b->length ? a : b;
    struct number *sum = number_new(calculation->worker, (size_t)longer->length + 1);
    memcpy(sum->limbs, longer->limbs, longer->length * sizeof *sum->limbs);
    sum->limbs[longer->length] = 0;
    const struct number *other = longer == a ? b : a;
    add_to(sum->limbs, sum->length, other->limbs, other->length);
    return finish(calculation, sum, residue_of((unsigned __int128)a->residue + b->residue));
}

static struct number *multiply(struct calculation *calculation, const struct number *a,
                               const struct number *b)
{
    struct number *product = number_new(calculation->worker, (size_t)a->length + b->length);
    multiply_limbs(calculation->worker, product->limbs, a->limbs, a->length, b->limbs, b->length);
    return finish(calculation, product, residue_of((unsigned __int128)a->residue * b->residue));
}

static struct number *multiply_by(struct calculation *calculation, const struct number *a,
                                  uint64_t factor)
{
    struct number *product = number_new(calculation->worker, (size_t)a->length + 1);
    multiply_plain(product->limbs, a->limbs, a->length, &factor, 1);
    return finish(calculation, product, residue_of((unsigned __int128)a->residue * factor));
}

static struct number *divide_by(struct calculation *calculation, const struct number *a,
                                uint32_t divisor, uint32_t *remainder)
{
    struct number *quotient = number_new(calculation->worker, a->length);
    uint64_t rest = 0;
    for (size_t i = a->length; i-- > 0;) {
        uint64_t high = rest << 32 | a->limbs[i] >> 32;
        uint64_t low = high % divisor << 32 | (uint32_t)a->limbs[i];
        quotient->limbs[i] = high / divisor << 32 | low / divisor;
        rest = low % divisor;
    }
    *remainder = (uint32_t)rest;
    uint64_t residue = residue_of_limbs(quotient->limbs, a->length);
    if (residue_of((unsigned __int128)residue * divisor + rest) != a->residue)
        calculation->worker->damaged++;
    return finish(calculation, quotient, residue);
}

static void replace(struct calculation *calculation, struct number **number, struct number *by)
{
    number_drop(calculation->worker, *number);
    *number = by;
}

/* Calculations. Each of these functions returns a number of about `length` limbs, or a shorter
 * number if no operations are left. */

static struct number *factorial(struct calculation *calculation, size_t length)
{
    struct number *result = number_of(calculation->worker, 1);
    for (uint64_t i = 2; result->length < length && calculation->left > 0; i++)
        replace(calculation, &result, multiply_by(calculation, result, i));
    return result;
}

static struct number *sequence(struct calculation *calculation, size_t length)
{
    struct number *before = number_random(calculation->worker, length);
    struct number *result = number_random(calculation->worker, length);
    for (unsigned i = 0; i < STEPS_OF_SEQUENCE && calculation->left > 0; i++) {
        replace(calculation, &before, add(calculation, before, result));
        struct number *swap = before;
        before = result;
        result = swap;
    }
    number_drop(calculation->worker, before);
    return result;
}

static struct number *power(struct calculation *calculation, size_t length)
{
    struct number *base = number_random(calculation->worker, 1);
    struct number *result = number_of(calculation->worker, 1);
    while (result->length < length && calculation->left > 0) {
        replace(calculation, &result, multiply(calculation, result, result));
        if (random_next(&calculation->worker->random) % 2 == 0 && calculation->left > 0)
            replace(calculation, &result, multiply(calculation, result, base));
    }
    number_drop(calculation->worker, base);
    return result;
}

static struct number *product(struct calculation *calculation, uint64_t first, uint64_t last)
{
    if (first == last)
        return number_of(calculation->worker, first);
    struct number *result = product(calculation, first, first + (last - first) / 2);
    if (calculation->left == 0)
        return result;
    struct number *upper = product(calculation, first + (last - first) / 2 + 1, last);
    if (calculation->left > 0)
        replace(calculation, &result, multiply(calculation, result, upper));
    number_drop(calculation->worker, upper);
    return result;
}

/* Computes e in fixed point: 1 + 1/1! + 1/2! + … The result has few digits, because division takes
 * long. */
static struct number *digits_of_e(struct calculation *calculation, size_t length)
{
    length = length < DIGITS_LIMBS_MOST ? length : DIGITS_LIMBS_MOST;
    struct number *term = number_new(calculation->worker, length);
    struct number *result = number_of(calculation->worker, 0);
    memset(term->limbs, 0, length * sizeof *term->limbs);
    term->limbs[length - 1] = 1;
    term->residue = 1;
    for (uint32_t i = 1; term->length > 0 && calculation->left > 0; i++) {
        uint32_t rest;
        replace(calculation, &result, add(calculation, result, term));
        if (calculation->left > 0)
            replace(calculation, &term, divide_by(calculation, term, i, &rest));
    }
    number_drop(calculation->worker, term);
    return result;
}

/* Converts a number to decimal, nine digits at a time, into an array that grows. Then computes the
 * residue from the digits, to check them. */
static void to_decimal(struct calculation *calculation, const struct number *number)
{
    struct number *quotient = NULL;
    const struct number *whole = number;
    uint32_t *groups = NULL;
    size_t count = 0;
    size_t room = 0;
    while (whole->length > 0 && calculation->left > 0) {
        if (count == room) {
            groups = worker_realloc(calculation->worker, groups, room * sizeof *groups,
                                    (room + room / 2 + 4) * sizeof *groups);
            room += room / 2 + 4;
        }
        replace(calculation, &quotient, divide_by(calculation, whole, GROUP, &groups[count++]));
        whole = quotient;
    }
    uint64_t residue = whole->residue;
    for (size_t i = count; i-- > 0;)
        residue = residue_of((unsigned __int128)residue * GROUP + groups[i]);
    if (residue != number->residue)
        calculation->worker->damaged++;
    number_drop(calculation->worker, quotient);
    worker_free(calculation->worker, groups, room * sizeof *groups);
}

/* Does one random calculation. Its result is kept until there are `results_count` newer results. */
static void calculate(struct calculation *calculation)
{
    struct random *random = &calculation->worker->random;
    size_t length = size_log_uniform(random, 2, limbs_most);
    uint64_t first = random_next(random) >> 34;
    struct number *result;
    switch (random_below(random, 5)) {
    case 0:
        result = factorial(calculation, length);
        break;
    case 1:
        result = sequence(calculation, length);
        break;
    case 2:
        result = power(calculation, length);
        break;
    case 3:
        result = product(calculation, first + 1, first + 2 * length);
        break;
    default:
        result = digits_of_e(calculation, length);
        break;
    }
    worker_sum(calculation->worker, result->residue ^ result->length);
    if (result->length <= DIGITS_LIMBS_MOST)
        to_decimal(calculation, result);
    replace(calculation, &calculation->results[calculation->next_result], result);
    calculation->next_result = (calculation->next_result + 1) % results_count;
}

static void work(struct worker *worker)
{
    size_t bytes = results_count * sizeof(struct number *);
    struct calculation calculation = {.worker = worker, .results = table_new(bytes)};
    while (worker_goes_on(worker)) {
        uint64_t left = worker->share - worker->done;
        uint64_t batch = left < workload.batch ? left : workload.batch;
        calculation.left = left;
        worker_begin(worker);
        while (left - calculation.left < batch)
            calculate(&calculation);
        worker_end(worker, left - calculation.left);
    }
    for (uint64_t i = 0; i < results_count; i++)
        number_drop(worker, calculation.results[i]);
    table_free(calculation.results, bytes);
}

const struct workload workload = {
    .name = "big_integers",
    .title = "arithmetic on integers of any length: every result is a fresh block",
    .operation = "one sum, product or quotient; its operands are freed",
    .own = own,
    .operations = 40000000,
    .batch = 500,
    .threads = 1,
    .threads_least = 1,
    .prepare = prepare,
    .work = work,
};
