// containers.cpp - tests arena.hpp with containers, limits, throwing constructors and threads.
// Prints every failed check, and then exits with 1.
#include <cairn/arena.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static unsigned failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);         \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

template <typename Function> static bool throws_bad_alloc(Function function)
{
    try {
        function();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void an_arena_owns_and_can_be_moved()
{
    cairn::arena first(1 << 20);
    auto *text = first.make<std::array<char, 100>>();
    text->fill('x');
    cairn::arena second = std::move(first);
    CHECK((*text)[99] == 'x' && first.get() == nullptr);
    first = std::move(second);
    CHECK(first.statistics().allocated_bytes >= 100);
    first.reset();
    first.trim();
    CHECK(first.statistics().allocated_bytes == 0);
    static_assert(!std::is_copy_constructible_v<cairn::arena> &&
                  !std::is_copy_assignable_v<cairn::arena>);
    static_assert(std::is_nothrow_move_constructible_v<cairn::arena>);
}

static void running_out_of_memory_throws()
{
    cairn_arena_options options{};
    options.limit_bytes = 1 << 20;
    cairn::arena arena(options);
    CHECK(throws_bad_alloc([&] { arena.allocate(2 << 20); }));
    CHECK(throws_bad_alloc([&] { arena.allocate(SIZE_MAX); }));
    CHECK(throws_bad_alloc([&] { arena.allocate(16, std::size_t(1) << 40); }));
    CHECK(throws_bad_alloc([&] { cairn::arena(nullptr, 100); }));
    std::vector<int, cairn::arena_allocator<int>> numbers(arena);
    CHECK(throws_bad_alloc([&] { numbers.resize(1 << 20); }));
    numbers.resize(1000);
    cairn::arena_allocator<std::uint64_t> allocator(arena);
    bool overflows = false;
    try {
        (void)allocator.allocate(SIZE_MAX / 4);
    } catch (const std::bad_array_new_length &) {
        overflows = true;
    }
    CHECK(overflows);
    CHECK(arena.allocate(100) != nullptr);
}

static void a_scope_frees_the_blocks_made_in_it()
{
    cairn::arena arena;
    arena.allocate(100);
    std::size_t before = arena.statistics().allocated_bytes;
    for (int i = 0; i < 1000; i++) {
        cairn::arena_scope outer(arena);
        arena.allocate(5000);
        cairn::arena_scope inner(arena);
        arena.allocate(50000);
    }
    // A checked arena allocates a few bytes for each mark. A later mark at the same position reuses
    // them.
    CHECK(arena.statistics().allocated_bytes <= before + 32);
    CHECK(arena.statistics().reserved_bytes < (1 << 20));
}

static void containers_of_std_pmr_live_in_an_arena()
{
    cairn::arena arena;
    cairn::arena_resource resource(arena);
    cairn::arena_resource another(arena);
    CHECK(resource == resource && !(resource == another));
    {
        std::pmr::unordered_map<std::pmr::string, std::pmr::vector<int>> table(&resource);
        for (int i = 0; i < 5000; i++) {
            std::pmr::string key(std::to_string(i) + " is long enough to be allocated", &resource);
            table[key].assign(static_cast<std::size_t>(i % 50), i);
        }
        for (int i = 0; i < 5000; i += 3)
            table.erase(std::pmr::string(std::to_string(i) + " is long enough to be allocated"));
        CHECK(table.size() == 5000 - 1667);
        bool right = true;
        for (const auto &[key, numbers] : table)
            for (int number : numbers)
                right = right &&
                        key.compare(0, std::to_string(number).size(), std::to_string(number)) == 0;
        CHECK(right);
    }
    void *block = resource.allocate(100, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
    resource.deallocate(block, 100, 4096);
    resource.deallocate(resource.allocate(0, 1), 0, 1);
    CHECK(arena.statistics().allocated_bytes > 5000 * 30);
    arena.reset();
}

struct alignas(128) wide {
    char bytes[128];
};

static void containers_with_an_allocator_live_in_an_arena()
{
    cairn::arena arena;
    using text = std::basic_string<char, std::char_traits<char>, cairn::arena_allocator<char>>;
    std::vector<text, cairn::arena_allocator<text>> texts(arena);
    std::map<int, int, std::less<int>, cairn::arena_allocator<std::pair<const int, int>>> map(
        arena);
    std::list<int, cairn::arena_allocator<int>> list(arena);
    std::deque<int, cairn::arena_allocator<int>> deque(arena);
    std::unordered_map<int, int, std::hash<int>, std::equal_to<int>,
                       cairn::arena_allocator<std::pair<const int, int>>>
        hashed(arena);
    std::vector<wide, cairn::arena_allocator<wide>> wides(arena);
    for (int i = 0; i < 3000; i++) {
        texts.emplace_back(static_cast<std::size_t>(i % 100), static_cast<char>('a' + i % 26),
                           arena);
        map[i] = hashed[i] = i;
        list.push_front(i);
        deque.push_back(i);
        wides.emplace_back();
    }
    CHECK(texts[2599] == text(99, 'z', arena));
    CHECK(map.at(2999) == 2999 && hashed.at(17) == 17 && list.front() == 2999 &&
          deque.back() == 2999);
    CHECK(reinterpret_cast<std::uintptr_t>(wides.data()) % 128 == 0);
}

static void a_container_stays_in_its_arena()
{
    cairn::arena kept;
    cairn::arena passing;
    using numbers = std::vector<int, cairn::arena_allocator<int>>;
    numbers one(100, 1, kept);
    {
        numbers two(200, 2, passing);
        one = two;
        CHECK(one.get_allocator().get() == kept.get() && one.size() == 200);
        one = std::move(two);
        CHECK(one.get_allocator().get() == kept.get() && one[199] == 2);
        numbers three(300, 3, passing);
        const int *data = three.data();
        numbers four(std::move(three));
        CHECK(four.data() == data && four.get_allocator().get() == passing.get());
        numbers five(50, 5, kept);
        swap(four, five); // swap() also exchanges the allocators
        CHECK(four.size() == 50 && four.get_allocator().get() == kept.get());
        CHECK(five.size() == 300 && five.get_allocator().get() == passing.get());
    }
    passing.reset();
    CHECK(one[0] == 2 && one[199] == 2);
    using traits = std::allocator_traits<cairn::arena_allocator<int>>;
    static_assert(!traits::is_always_equal::value && traits::propagate_on_container_swap::value);
    static_assert(std::is_same_v<traits::rebind_alloc<wide>, cairn::arena_allocator<wide>>);
    CHECK(cairn::arena_allocator<int>(kept) == cairn::arena_allocator<char>(kept));
    CHECK(cairn::arena_allocator<int>(kept) != cairn::arena_allocator<int>(passing));
}

struct counted {
    explicit counted(bool fails) : name("long enough to be allocated by the string")
    {
        if (fails)
            throw 7;
        alive++;
    }
    ~counted()
    {
        alive--;
    }
    std::string name;
    static int alive;
};

int counted::alive;

static void a_pool_creates_and_destroys_objects()
{
    cairn::pool<counted> pool;
    std::vector<counted *> objects;
    for (int i = 0; i < 1000; i++)
        objects.push_back(pool.create(false));
    CHECK(counted::alive == 1000 && pool.statistics().used_count == 1000);
    bool thrown = false;
    try {
        pool.create(true);
    } catch (int) {
        thrown = true;
    }
    CHECK(thrown && pool.statistics().used_count == 1000);
    for (counted *object : objects)
        pool.destroy(object);
    pool.destroy(nullptr);
    CHECK(counted::alive == 0 && pool.statistics().used_count == 0);

    cairn_arena_options options{};
    options.limit_bytes = 1 << 16;
    cairn::arena arena(options);
    cairn::pool<wide> wides(arena);
    CHECK(reinterpret_cast<std::uintptr_t>(wides.create()) % 128 == 0);
    CHECK(throws_bad_alloc([&] {
        for (;;)
            wides.create();
    }));
    cairn::pool<wide> moved = std::move(wides);
    CHECK(moved.statistics().used_count > 100);
}

static void a_shared_pool_works_from_many_threads()
{
    cairn::pool<std::uint64_t> pool(cairn::sharing::any_thread);
    std::vector<std::thread> threads;
    for (std::uint64_t id = 0; id < 4; id++)
        threads.emplace_back([&pool, id] {
            for (unsigned i = 0; i < 20000; i++) {
                std::uint64_t *number = pool.create(id);
                if (*number != id)
                    std::abort();
                pool.destroy(number);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    CHECK(pool.statistics().used_count == 0);
}

int main()
{
    an_arena_owns_and_can_be_moved();
    running_out_of_memory_throws();
    a_scope_frees_the_blocks_made_in_it();
    containers_of_std_pmr_live_in_an_arena();
    containers_with_an_allocator_live_in_an_arena();
    a_container_stays_in_its_arena();
    a_pool_creates_and_destroys_objects();
    a_shared_pool_works_from_many_threads();
    return failures == 0 ? 0 : 1;
}
