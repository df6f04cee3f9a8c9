/* known_stacks.cpp - C++ functions whose bytes and blocks follow by a formula.
 *
 * known_stacks ROUNDS: in each round,
 *
 *     grow<N>()              allocates a Node<N> of N bytes by new, for N = 16, 48 and 400
 *     Parser::node()         allocates 3 nodes of 64 bytes in a function that is inlined into it
 *     (anonymous)::table()   makes a vector of 50 numbers of 8 bytes
 *     text()                 makes a string of 99 characters, and so a block of 100 bytes
 *
 * All blocks are freed by their function, except for those of grow<400>().
 */
#include <cstdlib>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

static void keep(const void *block)
{
    __asm__ volatile("" : : "r"(block) : "memory");
}

template <int N> struct Node {
    char bytes[N];
};

template <int N> NOINLINE void grow()
{
    Node<N> *node = new Node<N>;
    keep(node);
    if (N != 400)
        delete node;
    keep(nullptr);
}

struct Parser {
    static inline __attribute__((always_inline)) Node<64> *make()
    {
        return new Node<64>;
    }

    NOINLINE int node(int count)
    {
        for (int i = 0; i < count; i++) {
            Node<64> *made = make();
            keep(made);
            delete made;
        }
        return count;
    }
};

namespace
{
NOINLINE void table()
{
    std::vector<long> numbers(50);
    keep(numbers.data());
}
} // namespace

NOINLINE void text()
{
    std::string characters(99, 'x');
    keep(characters.data());
}

int main(int count, char **arguments)
{
    unsigned long rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 1;
    Parser parser;
    for (unsigned long round = 0; round < rounds; round++) {
        grow<16>();
        grow<48>();
        grow<400>();
        parser.node(3);
        table();
        text();
    }
    return 0;
}
